import { own } from '../../../protocol/records';
import type { IStreamRows } from '../../../store/row-store';
import type { IRunSource } from '../../../store/source';
import type { ITensorRow, ITensorQuery, ITensorResult } from '../../../store/tensor-data';

/** Reads rows of a stream cell by cell; columns may be missing, and cells hold anything. */
export class RowCells {
  constructor(private readonly _rows: Pick<IStreamRows, 'columns'>) {}

  number(name: string, row: number): number {
    return Number(this._cell(name, row) ?? NaN);
  }

  /** An integer; -1 where there is none. */
  count(name: string, row: number): number {
    const value = this.number(name, row);
    return Number.isSafeInteger(value) ? value : -1;
  }

  /** A text; empty where there is none. */
  text(name: string, row: number): string {
    const value = this._cell(name, row);
    return typeof value === 'string' ? value : '';
  }

  /** A list; empty where there is none. */
  list(name: string, row: number): readonly (number | string)[] {
    const value = this._cell(name, row);
    return Array.isArray(value) ? (value as readonly (number | string)[]) : [];
  }

  private _cell(name: string, row: number): unknown {
    return own(this._rows.columns, name)?.[row];
  }
}

/** A column of numbers; NaN throughout where there is none. */
export function numberColumn(
  { columns, length }: Pick<IStreamRows, 'columns' | 'length'>,
  name: string
): Float64Array {
  const column = own(columns, name);
  return column instanceof Float64Array ? column : new Float64Array(length).fill(NaN);
}

/** A tensor of a whole text. */
export interface IJoinedRow {
  /** `[1, positions, *]`, NaN where a position is missing. */
  readonly row: ITensorRow;
  /** By position: 1 where there is no row. */
  readonly missing: Uint8Array;
}

/**
 * Put the rows of one layer together, position after position.
 * @param axis - Index of the position axis among the axes of one sample, 0 for `[positions, features]`.
 * @returns Null where the layer has no row of the sequence with that axis.
 */
export function joinPositions(
  read: IGenerationRead,
  layer: number,
  sequence: number,
  axis = 0
): IJoinedRow | null {
  const found = read.passes.flatMap(({ rows, ...pass }) => {
    const row = rows.get(layer);
    return row && isWhole(row, axis) && sequence < (row.shape[0] ?? 0) ? [{ ...pass, row }] : [];
  });
  const newest = found[found.length - 1]?.row;
  if (newest === undefined) {
    return null;
  }
  const { count } = read;
  const [outer, inner] = [product(newest.shape.slice(1, axis + 1)), product(newest.shape.slice(axis + 2))];
  const values = new Float32Array(outer * count * inner).fill(NaN);
  const missing = new Uint8Array(count).fill(1);
  // What was traced otherwise before does not fit beside the newest.
  const fitting = found.filter(({ row }) => row.compressor === newest.compressor && fits(row, newest, axis));
  for (const { row, positions, shift } of fitting) {
    const length = row.shape[axis + 1] ?? 0;
    for (let position = positions[0]; position <= positions[1]; position += 1) {
      const offset = position + shift;
      if (offset < 0 || offset >= length) {
        continue;
      }
      for (let slice = 0; slice < outer; slice += 1) {
        const from = ((sequence * outer + slice) * length + offset) * inner;
        values.set(row.values.subarray(from, from + inner), (slice * count + position) * inner);
      }
      missing[position] = 0;
    }
  }
  const sum = (part: (row: ITensorRow) => number): number =>
    fitting.reduce((total, { row }) => total + part(row), 0);
  const lengthened = (shape: readonly number[]): number[] => [
    1,
    ...shape.slice(1, axis + 1),
    count,
    ...shape.slice(axis + 2)
  ];
  return {
    missing,
    row: {
      ...newest,
      microBatch: 0,
      labels: [],
      values,
      shape: lengthened(newest.shape),
      sourceShape: lengthened(newest.sourceShape),
      nanCount: sum(row => row.nanCount),
      infCount: sum(row => row.infCount),
      compressionError: NaN,
      whole: null
    }
  };
}

export const product = (sizes: readonly number[]): number => sizes.reduce((all, size) => all * size, 1);

/** Whether the position axis is there, and as long as the pass was. */
function isWhole(row: ITensorRow, axis: number): boolean {
  return row.shape.length > axis + 1 && row.shape[axis + 1] === row.sourceShape[axis + 1];
}

function fits(row: ITensorRow, other: ITensorRow, axis: number): boolean {
  return (
    row.shape.length === other.shape.length &&
    row.shape.every((size, at) => at === 0 || at === axis + 1 || size === other.shape[at])
  );
}

/** Where the tensors of a position of a generated text lie, as the stream `tokens` says. */
export interface ITokenLocation {
  /** Counted from 0 at the first token of the prompt. */
  readonly position: number;
  /** Step of the rows; -1 where the token was never read. */
  readonly step: number;
  /** Their micro-batch. */
  readonly pass: number;
  /** Place on their position axis. */
  readonly offset: number;
}

export type GenerationQuery = Pick<ITensorQuery, 'flag' | 'part' | 'layers' | 'peaks'> & {
  /** Of this rank; of each layer the lowest that has it when absent. */
  readonly rank?: number | undefined;
};

/** One forward pass of a generation: the positions of a sequence that it read, and a row of each layer. */
export interface IGenerationPass {
  /** First and last position. */
  readonly positions: readonly [number, number];
  /** What a position differs by from its place on the rows' position axis: offset - position. */
  readonly shift: number;
  readonly rows: ReadonlyMap<number, ITensorRow>;
}

/** What is here of a generation's tensors for one sequence. */
export interface IGenerationRead {
  /** Layers with rows, ascending. */
  readonly layers: readonly number[];
  /** By first position. Passes without any row are among them. */
  readonly passes: readonly IGenerationPass[];
  /** Positions of the text. */
  readonly count: number;
  /** Positions that the model never read, such as the last token. */
  readonly unread: number;
  /** Positions it read of which some layer has no row: not traced, dropped on the way, or given up. */
  readonly missing: number;
  /** Another number when there are other rows than before. */
  readonly version: number;
  /** What the source said of its memory, when it was asked last. */
  readonly kept: Pick<ITensorResult, 'evictedRows' | 'kept'>;
}

/** Steps further apart than this are asked for one by one: there is nothing between them that is wanted. */
const MOST_BETWEEN = 4;

const NOTHING: IGenerationRead['kept'] = { evictedRows: 0 };

/**
 * Reads the tensors of a generation, whose positions lie in many forward passes. What it has it does not ask
 * for again: while a text is written only its new positions are read.
 */
export class GenerationRows {
  constructor(private readonly source: Pick<IRunSource, 'tensors'>) {}

  /** Rows of some steps came: where a pass lacked some, it is asked for again. */
  came(firstStep: number, lastStep: number): void {
    this.news.forEach(news => news.push([firstStep, lastStep]));
    for (const [key, step] of this.asked) {
      if (step >= firstStep && step <= lastStep) {
        this.asked.delete(key);
      }
    }
  }

  /**
   * Read what there is of a sequence.
   * @param generation - Tells generations apart: what is held of another one is let go.
   * @param places - Of each position of the sequence, in any order.
   */
  async read(
    generation: number,
    query: GenerationQuery,
    locations: readonly ITokenLocation[],
    signal?: AbortSignal
  ): Promise<IGenerationRead> {
    this.begin(generation, query);
    const passes = passesOf(locations);
    const wanted = passes.filter(each => this.lacks(each, query.layers) && !this.asked.has(each.key));
    const news: [number, number][] = [];
    this.news.add(news);
    try {
      for (const [first, last] of spans(wanted.map(each => each.step))) {
        await this.ask(query, first, last, signal);
      }
    } finally {
      this.news.delete(news);
    }
    // What came while the answer was on its way may not be in it.
    wanted
      .filter(({ step }) => !news.some(([first, last]) => step >= first && step <= last))
      .forEach(each => this.asked.set(each.key, each.step));
    return this.found(passes, locations);
  }

  /**
   * Read every pass of some steps, without the tokens of the text: where what is asked for says itself which
   * positions it is of.
   */
  async readSteps(
    generation: number,
    query: GenerationQuery,
    steps: readonly [number, number],
    placesOf: (row: ITensorRow) => readonly ITokenLocation[],
    signal?: AbortSignal
  ): Promise<IGenerationRead> {
    this.begin(generation, query);
    await this.ask(query, ...steps, signal);
    const locations = [...this.rows.values()].flatMap(rows => placesOf([...rows.values()][0] as ITensorRow));
    return this.found(passesOf(locations), locations);
  }

  private begin(generation: number, query: GenerationQuery): void {
    const key = JSON.stringify([generation, query]);
    if (key !== this.key) {
      [this.key, this.kept] = [key, NOTHING];
      this.version += 1;
      this.rows.clear();
      this.asked.clear();
    }
  }

  private lacks({ key }: IPassPosition, layers: readonly number[] | undefined): boolean {
    const rows = this.rows.get(key);
    return rows === undefined || layers === undefined || layers.some(layer => !rows.has(layer));
  }

  private async ask(
    query: GenerationQuery,
    first: number,
    last: number,
    signal?: AbortSignal
  ): Promise<void> {
    const { rank = 'lowest', ...rest } = query;
    const kind = { phase: 'generate', pass: 'forward', rank } as const;
    const key = this.key;
    const result = await this.source.tensors({ ...rest, ...kind, steps: [first, last] }, signal);
    if (result.sampledEvery > 1 && first < last) {
      // Too many for one answer, which leaves steps out.
      const middle = Math.floor((first + last) / 2);
      await this.ask(query, first, middle, signal);
      await this.ask(query, middle + 1, last, signal);
      return;
    }
    if (key !== this.key) {
      return;
    }
    this.kept = result;
    for (const row of result.rows) {
      const at = keyOf(row.step, row.microBatch);
      const rows = this.rows.get(at) ?? new Map<number, ITensorRow>();
      this.version += rows.get(row.layer) === row ? 0 : 1;
      rows.set(row.layer, row);
      this.rows.set(at, rows);
    }
  }

  private found(places: readonly IPassPosition[], all: readonly ITokenLocation[]): IGenerationRead {
    const passes = places.map(({ key, positions, shift }) => ({
      positions,
      shift,
      rows: this.rows.get(key) ?? NO_ROWS
    }));
    const layers = [...new Set(passes.flatMap(({ rows }) => [...rows.keys()]))].sort((a, b) => a - b);
    const count = all.reduce((most, { position }) => Math.max(most, position + 1), 0);
    const unread = all.filter(({ step }) => step < 0).length;
    const length = ({ positions: [first, last] }: IGenerationPass): number => last - first + 1;
    const here = passes
      .filter(({ rows }) => layers.length > 0 && layers.every(layer => rows.has(layer)))
      .reduce((sum, pass) => sum + length(pass), 0);
    // What nothing is known of was given up.
    const missing = count - unread - here;
    return { layers, passes, count, unread, missing, version: this.version, kept: this.kept };
  }

  private key = '';
  private kept: IGenerationRead['kept'] = NOTHING;
  private version = 0;
  /** Rows by pass and layer. */
  private readonly rows = new Map<string, Map<number, ITensorRow>>();
  /** Passes that were asked for since rows of their step came last, and their steps. */
  private readonly asked = new Map<string, number>();
  /** Of each reading that is under way, the steps of which rows came since it began. */
  private readonly news = new Set<[number, number][]>();
}

interface IPassPosition extends Omit<IGenerationPass, 'rows'> {
  readonly key: string;
  readonly step: number;
}

const NO_ROWS: ReadonlyMap<number, ITensorRow> = new Map();

const keyOf = (step: number, pass: number): string => `${step} ${pass}`;

/** The forward passes in which positions were read, by first position; neighbours in a pass are adjacent. */
function passesOf(locations: readonly ITokenLocation[]): IPassPosition[] {
  const passes: IPassPosition[] = [];
  for (const { position, step, pass, offset } of [...locations].sort((a, b) => a.position - b.position)) {
    const [key, last] = [keyOf(step, pass), passes[passes.length - 1]];
    const shift = offset - position;
    if (step < 0) {
      continue;
    }
    if (last?.key === key && last.shift === shift && last.positions[1] === position - 1) {
      passes[passes.length - 1] = { ...last, positions: [last.positions[0], position] };
    } else {
      passes.push({ key, step, shift, positions: [position, position] });
    }
  }
  return passes;
}

/** First and last of steps that are near one another. */
function spans(steps: readonly number[]): [number, number][] {
  const found: [number, number][] = [];
  for (const step of [...new Set(steps)].sort((a, b) => a - b)) {
    const last = found[found.length - 1];
    if (last && step - last[1] <= MOST_BETWEEN) {
      last[1] = step;
    } else {
      found.push([step, step]);
    }
  }
  return found;
}
