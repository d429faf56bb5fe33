import { indexAt, picked, thinLine, trailingMean } from '../../../aggregate';
import { compareLines } from './compare';
import { breaksOf, mapColumns, type ILine } from './line';

type Steps = readonly [number, number];

export interface ILineShape {
  readonly smoothing: number;
  readonly steps: Steps | null;
  /** About how many points a line may have. */
  readonly points: number;
}

/** The points of a line in some steps; null where it has none there. */
export function cutLine(line: ILine, [first, last]: Steps): ILine | null {
  const before = indexAt(line.step, first);
  const from = line.step[before] === first ? before : before + 1;
  const to = indexAt(line.step, last) + 1;
  return to <= from ? null : mapColumns(line, column => column.subarray(from, to));
}

/**
 * Smooth lines: each trailing mean comes with the numbers that it goes over, which stay as a faint line.
 * Every point must be there.
 */
export function smoothLines(lines: readonly ILine[], smoothing: number): readonly ILine[] {
  if (smoothing < 2) {
    return lines;
  }
  const smoothed = lines.map(line => {
    const { half: _half, ...rest } = line;
    return { ...rest, value: trailingMean(line.value, smoothing) };
  });
  return [...lines.map(({ half: _half, ...line }) => ({ ...line, isFaint: true as const })), ...smoothed];
}

/**
 * Leave of a line as many points as fit: first, last, least and greatest of every stretch, and every value
 * that is not finite.
 */
export function thinOut(line: ILine, points: number): ILine {
  if (line.x.length <= points) {
    return line;
  }
  const { kept } = thinLine(line.x, line.value, breaksOf(line), points);
  return {
    ...mapColumns(line, column => picked(column, kept)),
    isThin: line.isThin || kept.length < line.x.length,
    of: line.of ?? line.x.length
  };
}

export interface ILineAsk {
  readonly steps: Steps | null;
  /** About how many points of a line; every one when absent. */
  readonly points?: number;
}

/** Lines of runs, ready to be drawn. */
export interface IRunLines {
  readonly lines: readonly ILine[];
  /** Points of a comparison that lie between two of this run's. */
  readonly between: number;
  readonly readSteps: (run: number, steps: Steps) => Promise<readonly ILine[]>;
}

/**
 * Read the lines of runs. Where every point is needed, for a trailing mean or a comparison, all are read and
 * shaped here; else the run is asked for as many as are drawn.
 *
 * @param read - Asks a run, by its number, for its lines; 0 is the view's own.
 * @param base - Number of the run that the others are compared with.
 */
export async function readRunLines(
  runs: number,
  read: (run: number, ask: ILineAsk) => Promise<readonly ILine[]>,
  compare: 'overlay' | 'difference' | 'ratio',
  { smoothing, steps, points }: ILineShape,
  base = 0
): Promise<IRunLines> {
  const how = runs > 1 && compare !== 'overlay' ? compare : null;
  const numbers = Array.from({ length: runs }, (_, run) => run);
  if (smoothing < 2 && how === null) {
    const lines = await Promise.all(numbers.map(run => read(run, { steps, points })));
    return { lines: lines.flat(), between: 0, readSteps: (run, asked) => read(run, { steps: asked }) };
  }
  const all = await Promise.all(
    numbers.map(async run => smoothLines(await read(run, { steps: null }), smoothing))
  );
  const others = all.filter((_, run) => run !== base).flat();
  const { lines, between } =
    how !== null ? compareLines(all[base] ?? [], others, how) : { lines: all.flat(), between: 0 };
  const within = (span: Steps | null): ILine[] =>
    lines.flatMap(line => (span === null ? line : (cutLine(line, span) ?? [])));
  return {
    lines: within(steps).map(line => thinOut(line, points)),
    between,
    readSteps: (run, asked) => Promise.resolve(within(asked).filter(line => line.run === run))
  };
}

/** Most points of all lines together, and the least of one. */
const POINTS = { all: 80_000, least: 400 };

/** About how many points a line is drawn with: four a pixel, and fewer where there are very many lines. */
export function pointsOf(width: number, lines: number): number {
  const fair = Math.floor(POINTS.all / Math.max(1, lines));
  return Math.max(POINTS.least, Math.min(4 * width, fair));
}
