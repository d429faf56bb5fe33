import { formatBytes, formatInteger, timeWords } from '../../../charts';
import { own } from '../../../protocol/records';
import type { Bar } from '../../../views/kits/lanes/lane-picture';
import { kindColor } from '../../../views/shared/span-kinds';
import type { ITip } from '../../../views/shared/table';
import type { Translate } from '../../../views/shared/translate';
import type { IMemoryPiece, IPiece, ITimelineAnswer, ITimelineMemory } from '../client/timeline-api';
import { HALF, kindWords } from './lanes';

/** The kind by which the lanes of memory are hidden. */
export const MEMORY = 'memory';
/** Of a peak's colour, beside what was allocated; as two hexadecimal digits. */
const PALE = '66';
/** Most layers that a sentence names. */
const MOST_HOLDERS = 3;

export const isMemory = (piece: IPiece): piece is IMemoryPiece => piece.kind === MEMORY;

/** A stretch as two bars from the bottom of its lane: the peak in it, pale, and what was allocated. */
export function memoryBars({ lane, allocated, peak }: IMemoryPiece, scale: number, isDark: boolean): Bar[] {
  const color = kindColor(MEMORY, isDark);
  const bar = (bytes: number, shade: string): Bar => ({
    y: lane + HALF - (2 * HALF * bytes) / Math.max(1, scale),
    y2: lane + HALF,
    color: shade
  });
  return [...(peak > allocated ? [bar(peak, `${color}${PALE}`)] : []), bar(allocated, color)];
}

/** Where in a step a size was: `backward of layers.3`. */
function phaseWords(phase: string, name: string, t: Translate): string {
  const words =
    phase === 'step' ? t('the step') : phase === 'trace' ? t('the recording') : kindWords(phase, t);
  return name === '' ? words : t('%1 of %2', words, name);
}

export function memoryWords(
  { allocated, peak, phase, name, step }: IMemoryPiece,
  rank: number,
  t: Translate
): string {
  const sizes = t('%1 allocated, peak %2', formatBytes(allocated), formatBytes(peak));
  return phase === ''
    ? t('memory of rank %1: %2', formatInteger(rank), sizes)
    : t(
        'memory of rank %1, step %2, %3: %4',
        formatInteger(rank),
        formatInteger(step),
        phaseWords(phase, name, t),
        sizes
      );
}

export function memoryTip(piece: IMemoryPiece, rank: number, isDark: boolean, t: Translate): ITip {
  const { allocated, peak, reserved, phase, name, step, count, begin } = piece;
  return {
    heading: t('memory of rank %1', formatInteger(rank)),
    lines: [
      { name: t('peak'), value: formatBytes(peak) },
      { name: t('allocated at the end'), value: formatBytes(allocated), color: kindColor(MEMORY, isDark) },
      { name: t('reserved'), value: formatBytes(reserved) },
      ...(phase === '' ? [] : [{ name: t('during'), value: phaseWords(phase, name, t) }]),
      ...(step >= 0 ? [{ name: t('step'), value: formatInteger(step) }] : []),
      ...(count > 1 ? [{ name: t('stretches, joined'), value: formatInteger(count) }] : []),
      { name: t('from'), value: timeWords(begin) }
    ]
  };
}

/** An answer whose memory is hidden. */
export const withoutMemory = ({ memory: _, ...others }: ITimelineAnswer): ITimelineAnswer => others;

/** Where most was allocated, in a sentence; none without memory. */
export function memorySummary({ memory }: ITimelineAnswer, t: Translate): string[] {
  return memory ? [topWords(memory, t)] : [];
}

function topWords({ scale, top }: ITimelineMemory, t: Translate): string {
  const limits: Readonly<Record<string, string>> = {
    device: t('the device'),
    cgroup: t('the limit of its control group'),
    machine: t('the machine')
  };
  const of = own(limits, top.limitOf);
  const size =
    of === undefined || !(top.limit > 0)
      ? formatBytes(scale)
      : t('%1 (%2 % of %3)', formatBytes(scale), formatInteger(Math.round((100 * scale) / top.limit)), of);
  return top.phase === 'trace'
    ? t('Most memory: %1 on rank %2.', size, formatInteger(top.rank))
    : t(
        'Most memory: %1 on rank %2 in step %3, %4.',
        size,
        formatInteger(top.rank),
        formatInteger(top.step),
        phaseWords(top.phase, top.name, t)
      );
}

/** What keeps most, in a sentence; nothing where nothing does. */
export function holderWords({ memory }: ITimelineAnswer, t: Translate): string[] {
  const { holders, top } = memory ?? { holders: [], top: { phase: '' } };
  const named = holders.slice(0, MOST_HOLDERS).map(({ name, bytes }) => `${name} ${formatBytes(bytes)}`);
  if (named.length === 0) {
    return [];
  }
  return [
    top.phase === 'trace'
      ? t('Lines that hold most: %1.', named.join(', '))
      : t('Layers that keep most after their forward pass: %1.', named.join(', '))
  ];
}
