import type { IMomentGroups, IMomentQuery, MomentColumn, MomentKey } from '../../store/moment-source';
import type { Translate } from '../shared/translate';
import { linesAcross, onlyAt } from './across';
import { compareLines } from '../shared/lines/compare';
import { placeNear } from '../shared/places';
import type { ILine } from '../shared/lines/line';
import type { IMomentRun, MomentReader } from './reader';
import { keyWords, type MomentOptions } from './words';

/** What a chart over layers is read from. */
export interface ILayersQuery {
  readonly options: MomentOptions;
  /** Columns that make a group, `layer` first. */
  readonly by: readonly MomentColumn[];
  /** What is asked of each run, apart from its step. */
  readonly question: IMomentQuery;
  /** What tells which steps a run has. */
  readonly everything: IMomentQuery;
  readonly reader: MomentReader;
  /** Name of the view's own run. */
  readonly name: string;
  readonly id: string;
  readonly others: readonly IMomentRun[];
  /** The step of the view's own run, and how many samples it had consumed; negative where nobody knows. */
  readonly step: number;
  readonly samples: number;
}

/** The layers of one step, of one or more runs. */
export interface ILayers {
  /** Groups of the view's own run. */
  readonly base: IMomentGroups;
  /** What is drawn. */
  readonly lines: readonly ILine[];
  /** What was read, in a comparison also of the run that others are compared with. */
  readonly read: readonly ILine[];
  /** The step of each other run; null where it has nothing to compare. */
  readonly steps: readonly (number | null)[];
}

/** Read each run at the chosen step, other runs at the one of theirs that lies nearest, in steps or in samples. */
export async function readLayers(query: ILayersQuery, signal: AbortSignal, t: Translate): Promise<ILayers> {
  const { options, by, question, reader, others } = query;
  const names = [query.name, ...others.map(each => each.name)];
  const ids = [query.id, ...others.map(each => each.id)];
  const rest = by.slice(1);
  const across = (groups: IMomentGroups, run: number): ILine[] => {
    const words = (key: MomentKey): string => keyWords(key, rest, t);
    const alone = others.length > 0 && rest.length === 0;
    const ofRun = (key: MomentKey): string => `${names[run] ?? ''} · ${words(key)}`;
    const name = alone ? (): string => names[run] ?? '' : others.length > 0 ? ofRun : words;
    return linesAcross(groups, run, name, alone ? name : words, alone ? ids[run] : undefined);
  };
  const base = await reader.groups({ ...question, steps: [query.step, query.step] }, signal);
  const own = across(base, 0);
  const read = await Promise.all(
    others.map(async ({ reader: other }, at) => {
      const step = other && (await stepOf(other, query, signal));
      return other && step !== null
        ? { step, lines: across(await other.groups({ ...question, steps: [step, step] }, signal), at + 1) }
        : { step: null, lines: [] };
    })
  );
  const theirs = read.flatMap(({ lines }) => lines);
  const compared = (how: 'difference' | 'ratio'): ILine[] => {
    const bases = new Map(own.map(line => [line.key, line]));
    // Between two layers there is nothing that could be compared.
    const shared = theirs.flatMap(line => onlyAt(line, bases.get(line.key)?.x ?? []));
    return compareLines(own, shared, how).lines;
  };
  const lines =
    options.compare === 'overlay' || others.length === 0 ? [...own, ...theirs] : compared(options.compare);
  return {
    base,
    lines,
    read: [...own, ...theirs],
    steps: read.map((each, run) =>
      lines.some(line => line.run === run + 1) && each.lines.length > 0 ? each.step : null
    )
  };
}

/** The step of another run that lies nearest to the drawn one; null where it has none. */
async function stepOf(
  reader: MomentReader,
  { options, everything, step, samples }: ILayersQuery,
  signal: AbortSignal
): Promise<number | null> {
  const total = await reader.groups(everything, signal);
  const onSamples = options.x === 'samples' && samples >= 0 && total.samples.every(each => each >= 0);
  const place = onSamples ? placeNear(total.samples, samples) : placeNear(total.step, step);
  return total.step[place] ?? null;
}
