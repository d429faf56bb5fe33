import { formatInteger, type Row, formatBytes, timeWords } from '../../../charts';
import { own } from '../../../protocol/records';
import { kindColor } from '../../../views/shared/span-kinds';
import { said } from '../../../views/shared/said';
import type { ITip } from '../../../views/shared/table';
import type { Translate } from '../../../views/shared/translate';
import type { ITimelineAnswer, ITimelineLane, IPiece } from '../client/timeline-api';

/** Pixels of a lane, and of all of them. */
export const LANE = { least: 10, usual: 22, most: 900 };
/** How much taller lanes are where some show sizes. */
const TALLER = 1.6;
/** Pixels of a piece's height that are left free, as a part of the lane. */
export const HALF = 0.42;
/** Pixels that the name of a lane takes, and a letter of what is written on one. */
const LABEL = 14;
const LETTER = 6;
/** Kinds whose spans are named on their lane. */
const NAMED: ReadonlySet<string> = new Set(['checkpoint', 'data', 'user']);

/** How many lanes there are, with those of memory. */
export const laneCount = ({ lanes, memory }: ITimelineAnswer): number =>
  lanes.length + (memory?.ranks.length ?? 0);

/** Lanes that are named: as many as there is space for, and those of who makes others wait. */
export function namedLanes(answer: ITimelineAnswer): number[] {
  const { lanes, culprits } = answer;
  const every = Math.ceil(LABEL / laneHeight(laneCount(answer)));
  const named = new Set(culprits.flatMap(({ ranks }) => (ranks.length > 4 ? [] : ranks)));
  const important = lanes.flatMap(({ rank }, at) => (named.has(rank) ? [at] : []));
  const others = Array.from({ length: laneCount(answer) }, (_, at) => at).filter(at => at % every === 0);
  return [...important, ...others.filter(at => !important.some(each => Math.abs(each - at) < every))];
}

/** The critical path along the lower edges of lanes, and from each rank to the one that it waited for. */
export function pathRows({ lanes, path }: ITimelineAnswer): Row[] {
  const laneOf = new Map(lanes.map(({ rank }, at) => [rank, at + HALF]));
  return path.flatMap(({ rank, begin, end }, at) => {
    const y = laneOf.get(rank);
    const before = path[at - 1];
    const from = before?.begin === end ? laneOf.get(before.rank) : undefined;
    return [
      ...(y === undefined ? [] : [{ x: begin, y, x2: end, y2: y }]),
      ...(y === undefined || from === undefined ? [] : [{ x: end, y, x2: end, y2: from }])
    ];
  });
}

export const laneHeight = (lanes: number): number =>
  Math.max(LANE.least, Math.min(LANE.usual, LANE.most / Math.max(1, lanes)));

/** Pixels of all lanes. */
export const lanesHeight = (answer: ITimelineAnswer): number => {
  const count = laneCount(answer);
  return Math.min(LANE.most, count * laneHeight(count) * (answer.memory ? TALLER : 1));
};

/** What is written on a lane: names of long spans that are no passes, and where nothing was recorded. */
export function labelRows(
  answer: ITimelineAnswer,
  hidden: ReadonlySet<string>,
  width: number,
  t: Translate
): Row[] {
  const { lanes, pieces, whole } = answer;
  const [from, to] = answer.window;
  if (laneHeight(laneCount(answer)) < LABEL) {
    return [];
  }
  const pixel = (to - from) / Math.max(1, width);
  const rows: Row[] = [];
  const add = (lane: number, begin: number, end: number, what: string, isGap: boolean): void => {
    const text = `${what} ${timeWords(end - begin)}`;
    if (text.length * LETTER * pixel < end - begin) {
      rows.push({ x: (begin + end) / 2, y: lane, text, gap: Number(isGap) });
    }
  };
  for (const lane of lanes.keys()) {
    let done = Math.max(from, whole[0]);
    for (const piece of pieces.filter(each => each.lane === lane).sort((a, b) => a.begin - b.begin)) {
      const { begin, end, kind, name, depth } = piece;
      add(lane, done, begin, t('nothing recorded'), true);
      done = Math.max(done, end);
      if (depth === 0 && NAMED.has(kind) && !hidden.has(kind)) {
        add(lane, begin, end, name === '' ? kindWords(kind, t) : name, false);
      }
    }
  }
  return rows;
}

/** Beginnings of steps, each with its number where there is room. */
export function stepRows({ steps, window: [from, to] }: ITimelineAnswer, width: number): Row[] {
  const space = ((to - from) / Math.max(1, width)) * 50;
  let free = -Infinity;
  return steps.map(([step, begin]) => {
    const isNamed = begin >= free;
    free = isNamed ? begin + space : free;
    return { x: begin, text: isNamed ? formatInteger(step) : '' };
  });
}

/** How uncertain the clock of a rank is, as a bar about the beginning of the first step that is seen. */
export function clockRow(
  { steps, window: [from] }: ITimelineAnswer,
  { halfWidth }: ITimelineLane,
  at: number
): Row[] {
  const begin = steps.find(each => each[1] >= from)?.[1];
  return begin === undefined || halfWidth === 0
    ? []
    : [{ x: begin - halfWidth, x2: begin + halfWidth, y: at - HALF }];
}

export function kindWords(kind: string, t: Translate): string {
  const words: Readonly<Record<string, string>> = {
    forward: t('forward'),
    backward: t('backward'),
    wgrad: t('weight gradients'),
    optimizer: t('optimizer'),
    data: t('waits for data'),
    checkpoint: t('checkpoint'),
    user: t('your own spans'),
    memory: t('memory'),
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

/** Most sentences of a kind. */
export const MOST_SENTENCES = 6;

export function titleOf(answer: ITimelineAnswer, t: Translate): string {
  const { culprits, isDraft, lacking, ranksThere, stepMs, stuck } = answer;
  const isAlone = ranksThere === 1;
  if (isDraft) {
    return isAlone
      ? t('Still looking for what costs time …')
      : t('Still looking for who makes the others wait …');
  }
  if (stuck.length > 0) {
    return t('The job is stuck in a collective');
  }
  if (Number.isNaN(stepMs)) {
    return t('There is no whole step to judge');
  }
  if (culprits.length === 0 && lacking.length > 0) {
    return t('Nothing slow is found, which says little');
  }
  if (culprits.length === 0) {
    return isAlone ? t('No step took unusually long') : t('Healthy: no rank makes the others wait');
  }
  return culprits.length === 1
    ? t('One thing costs time')
    : t('%1 things cost time', formatInteger(culprits.length));
}

export function captionOf(answer: ITimelineAnswer, isMap: boolean, t: Translate): string[] {
  const { chosen, hidden, lanes, pieces, priceMs, problems, ranksChosen, stalls, there } = answer;
  const most = Math.max(0, ...lanes.map(({ halfWidth }) => halfWidth));
  const drawn = t('%1 of %2 ranks are drawn.', formatInteger(lanes.length), formatInteger(ranksChosen));
  return [
    ...(chosen[0] > there[0] || chosen[1] < there[1]
      ? [t('Of steps %1 to %2 that there are.', ...there.map(formatInteger))]
      : []),
    ...(lanes.length < ranksChosen ? [drawn] : []),
    ...(most > 0 ? [t('Clocks agree to ± %1 (95 %).', timeWords(most))] : []),
    ...(!isMap && pieces.some(({ count }) => count > 1)
      ? [t('Spans shorter than a pixel are summed: zoom in to see each.')]
      : []),
    ...(priceMs > 0 ? [t('Without all of these a step is %1 shorter.', timeWords(priceMs))] : []),
    ...[...hidden, ...stalls].slice(0, MOST_SENTENCES).map(({ sentence }) => said(sentence, t)),
    ...problems.slice(0, MOST_SENTENCES).map(each => said(each, t))
  ];
}

export function summaryOf({ lanes, chosen, stepMs }: ITimelineAnswer, t: Translate): string {
  if (Number.isNaN(stepMs)) {
    return t(lanes.length === 1 ? '%1 rank.' : '%1 ranks.', formatInteger(lanes.length));
  }
  return t(
    lanes.length === 1 ? '%1 rank, steps %2 to %3, %4 each.' : '%1 ranks, steps %2 to %3, %4 each.',
    formatInteger(lanes.length),
    formatInteger(chosen[0]),
    formatInteger(chosen[1]),
    timeWords(stepMs)
  );
}
