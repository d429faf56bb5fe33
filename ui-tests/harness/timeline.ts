import type { IPiece, ISum, ITimelineAnswer } from '../../src/instruments/timeline/client/timeline-api';
import type { TimelineRequest } from '../../src/protocol/requests.generated';

const RANKS = 8;
const STEPS = 6;
const STEP_MS = 100;

/** Eight ranks in two stages, rank 5 half as slow again: what the server would answer of six steps, by hand. */
export function syntheticTimeline({ window, find = '', sums }: TimelineRequest): ITimelineAnswer {
  const whole: [number, number] = [0, STEPS * STEP_MS];
  const seen = window ?? whole;
  const pieces = Array.from({ length: STEPS }, (_, step) =>
    Array.from({ length: RANKS }, (__, lane) => piecesOf(step, lane)).flat()
  );
  return {
    isDraft: false,
    there: [1, 40],
    chosen: [3, 2 + STEPS],
    ranksThere: RANKS,
    ranksChosen: RANKS,
    lanes: Array.from({ length: RANKS }, (_, rank) => ({
      rank,
      stage: Math.floor(rank / 4),
      halfWidth: rank === 0 ? 0 : 0.0012,
      reference: 0
    })),
    window: seen,
    whole,
    steps: Array.from({ length: STEPS }, (_, at) => [at + 3, at * STEP_MS, (at + 1) * STEP_MS] as const),
    pieces: pieces
      .flat()
      .filter(({ end, begin }) => end > seen[0] && begin < seen[1])
      .sort((a, b) => a.depth - b.depth),
    links: [],
    path: [],
    found: foundIn(pieces.flat(), find),
    ...(sums ? { sums: sumsIn(pieces.flat(), sums) } : {}),
    culprits: [
      {
        kind: 'device',
        ranks: [5],
        first: 3,
        last: 8,
        slower: 0.5,
        priceMs: 21,
        sentence:
          'Steps 3 to 8: rank 5 computes 50.0 % (± 0.4 %) slower than its like. Without that a step is 21 ms (± 0.5) shorter.'
      }
    ],
    priceMs: NaN,
    lacking: [],
    stuck: [],
    hidden: [],
    stalls: [],
    stepMs: STEP_MS,
    problems: [],
    slow: {
      ranks: Array.from({ length: RANKS }, (_, rank) => rank),
      steps: Array.from({ length: STEPS }, (_, at) => at + 3),
      values: Array.from({ length: RANKS }, (_, rank) =>
        Array.from({ length: STEPS }, (__, at) => (rank === 5 ? 0.5 : 0.01 * Math.sin(rank * 7 + at)))
      )
    }
  };
}

function foundIn(pieces: readonly IPiece[], find: string): ITimelineAnswer['found'] {
  const first = pieces
    .filter(({ name, kind }) => find !== '' && (name.includes(find) || kind.includes(find)))
    .sort((a, b) => a.begin - b.begin)
    .map(({ lane, begin, end, step }) => ({ rank: lane, begin, end, step }));
  return { count: first.length, since: 0, first };
}

/** Of all ranks: what a test selects are all of them. */
function sumsIn(pieces: readonly IPiece[], [from, to]: readonly [number, number]): readonly ISum[] {
  const sums = new Map<string, ISum>();
  for (const { kind, name, begin, end } of pieces) {
    const ms = Math.min(end, to) - Math.max(begin, from);
    if (ms > 0) {
      const { count = 0, total = 0 } = sums.get(kind) ?? {};
      sums.set(kind, { kind, name, count: count + 1, total: total + ms });
    }
  }
  return [...sums.values()].sort((a, b) => b.total - a.total);
}

function piecesOf(step: number, lane: number): IPiece[] {
  const zero = step * STEP_MS;
  const [later, pace] = [lane < 4 ? 0 : 12, lane === 5 ? 1.5 : 1];
  const piece = (kind: string, begin: number, end: number, depth = 0): IPiece => ({
    lane,
    depth,
    kind,
    begin: zero + begin,
    end: zero + end,
    count: 1,
    row: (step * RANKS + lane) * 10 + depth * 5,
    name: kind === 'collective' ? 'all_reduce' : '',
    group: kind === 'collective' ? '0-7' : '',
    step: step + 3,
    microBatch: 0,
    chunk: 0,
    bytes: kind === 'collective' ? 4 << 20 : 0,
    peer: -1
  });
  const [forward, backward] = [later + 20 * pace, later + 48 * pace];
  return [
    ...(later === 0 ? [piece('data', 0, 2)] : [piece('receive', 0, later, 2)]),
    piece('forward', Math.max(2, later), forward),
    piece('backward', forward, backward),
    piece('collective', backward, 90, 2),
    piece('optimizer', 90, 99)
  ];
}
