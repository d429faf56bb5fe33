import { formatBytes, formatInteger, timeWords } from '../../../../charts';
import type { IPiece, ITimelineLane } from '../../client/timeline-api';
import { own } from '../../../../protocol/own';
import { kindColor } from '../../../../views/shared/span-kinds';
import type { ITip } from '../../../../views/shared/tip';
import type { Translate } from '../../../../views/shared/translate';

/** A kind in words. */
export function kindWords(kind: string, t: Translate): string {
  const words: Readonly<Record<string, string>> = {
    forward: t('forward'),
    backward: t('backward'),
    wgrad: t('weight gradients'),
    optimizer: t('optimizer'),
    data: t('waits for data'),
    checkpoint: t('checkpoint'),
    user: t('your own spans'),
    collective: t('blocked in a collective'),
    send: t('blocked in a send'),
    receive: t('blocked in a receive')
  };
  return own(words, kind) ?? kind;
}

/** A rank, with its stage where there are such. */
export function laneWords({ rank, stage }: ITimelineLane, t: Translate): string {
  return stage < 0
    ? t('rank %1', formatInteger(rank))
    : t('rank %1, stage %2', formatInteger(rank), formatInteger(stage));
}

/** What a piece is and where, as a tooltip. */
export function pieceTip(piece: IPiece, lane: ITimelineLane, isDark: boolean, t: Translate): ITip {
  const { kind, name, count, begin, end, step, microBatch, bytes, group, peer } = piece;
  const what = name === '' ? kindWords(kind, t) : name;
  const line = (there: boolean, label: string, value: () => string): ITip['lines'] =>
    there ? [{ name: label, value: value() }] : [];
  return {
    heading: laneWords(lane, t),
    lines: [
      { name: what, value: timeWords(end - begin), color: kindColor(kind, isDark) },
      ...line(count > 1, t('spans, summed'), () => formatInteger(count)),
      ...line(step >= 0, t('step'), () => formatInteger(step)),
      ...line(microBatch >= 0, t('micro-batch'), () => formatInteger(microBatch)),
      ...line(peer >= 0, t('other rank'), () => formatInteger(peer)),
      ...line(group !== '', t('ranks'), () => group),
      ...line(bytes > 0, t('size'), () => formatBytes(bytes)),
      { name: t('from'), value: timeWords(begin) }
    ]
  };
}
