/**
 * The package's entry for tables in TypeScript: `import { aq, moments } from 'megalens/aggregate'`. It brings
 * arquero and nothing of JupyterLab. The page loads it by `loadTables`, on first use.
 */
import * as aq from 'arquero';
import { byName } from '../protocol/records';
import type { IMergedMoments } from '../protocol/moment-statistics';
import { MOMENT_STATISTICS, readMomentErrors, readMoments } from '../protocol/moment-statistics';
import type { MomentStatistic } from '../protocol/views.generated';
import { parseName, type ITensorName } from '../protocol/tensor-name';
import { readPattern } from './moment-keys';
import { MERGED, mergeRows } from './moment-merge';

export type GatheredColumn =
  | 'count'
  | 'mean'
  | 'm2'
  | 'm3'
  | 'm4'
  | 'min'
  | 'max'
  | 'nan_count'
  | 'inf_count'
  | 'near_zero_count'
  | 'rounding';

export type IGatheredRow = Readonly<Partial<Record<GatheredColumn, number>>>;

/**
 * Rows with the cell of each, as arquero hands them over one by one, to be merged all at once when the first
 * answer is read.
 */
export class GatheredMoments {
  open(): number {
    this._cells += 1;
    return this._cells - 1;
  }

  /**
   * Add a row to a cell. Columns that are not there are 0, and are not read by what does not ask for them.
   */
  add(cell: number, row: IGatheredRow): void {
    const at = this._length;
    if (at === this._cell.length) {
      this._grow();
    }
    const { _columns: columns } = this;
    this._cell[at] = cell;
    columns.count[at] = row.count ?? 0;
    columns.mean[at] = row.mean ?? 0;
    columns.m2[at] = row.m2 ?? 0;
    columns.m3[at] = row.m3 ?? 0;
    columns.m4[at] = row.m4 ?? 0;
    columns.min[at] = row.min ?? NaN;
    columns.max[at] = row.max ?? NaN;
    const bad = (row.nan_count ?? 0) + (row.inf_count ?? 0);
    columns.nonFinite[at] = bad;
    const rounding = row.rounding ?? 0;
    columns.rounding[at] = rounding;
    this._any.nonFinite ||= bad !== 0;
    const near = row.near_zero_count ?? 0;
    columns.nearZero[at] = near;
    this._any.nearZero ||= near !== 0;
    this._any.rounding ||= rounding > 0;
    this._extremes ||= row.min !== undefined || row.max !== undefined;
    this._length += 1;
    this._merged = null;
  }

  /** Leave out the row that came first: a window's frame has passed it. */
  removeFirst(): void {
    this._first += 1;
    this._merged = null;
  }

  /** One value of each cell, read once by its name. */
  column(name: string, read: (of: IMergedMoments) => Float64Array): Float64Array {
    if (this._merged === null) {
      this._merged = mergeRows(
        { columns: this._columns, any: this._any },
        this._first,
        this._cell.subarray(this._first, this._length),
        this._cells,
        { power: 4, extremes: this._extremes }
      );
      this._read.clear();
    }
    const found = this._read.get(name) ?? read(this._merged);
    this._read.set(name, found);
    return found;
  }

  private _grow(): void {
    const capacity = Math.max(64, this._cell.length * 2);
    const cells = new Int32Array(capacity);
    cells.set(this._cell);
    this._cell = cells;
    for (const name of MERGED) {
      const grown = new Float64Array(capacity);
      grown.set(this._columns[name]);
      this._columns[name] = grown;
    }
  }

  private _cell = new Int32Array(0);
  private readonly _columns = byName(MERGED, () => new Float64Array(0));
  private readonly _any = { rounding: false, nonFinite: false, nearZero: false };
  private readonly _read = new Map<string, Float64Array>();
  private _merged: IMergedMoments | null = null;
  private _extremes = false;
  private _cells = 0;
  private _first = 0;
  private _length = 0;
}

export { aq };

const COUNTS = ['nan_count', 'inf_count', 'near_zero_count'] as const;
const SUFFICIENT = ['count', 'mean', 'm2', 'm3', 'm4', 'min', 'max', ...COUNTS] as const;

/** A column that can be made of rows of moments. */
export type MomentAggregate = MomentStatistic | (typeof SUFFICIENT)[number];

export type NameColumn = keyof ITensorName;

const MOMENTS: readonly GatheredColumn[] = ['count', 'mean', 'm2', 'm3', 'm4'];
const NAME_COLUMNS = Object.keys(parseName('')) as NameColumn[];
const BEFORE = 'moments_';

/**
 * The columns that a statistic is made of; with those of its powers, so that all statistics of a rollup share
 * one pass.
 */
function columnsOf(name: MomentAggregate): readonly GatheredColumn[] {
  switch (name) {
    case 'min':
    case 'max':
      return ['count', name];
    case 'nonfinite':
      return ['nan_count', 'inf_count'];
    case 'nan_count':
    case 'inf_count':
    case 'near_zero_count':
      return [name];
    case 'near_zero_share':
      return ['count', ...COUNTS];
    default:
      return MOMENTS;
  }
}

function read(of: IMergedMoments, name: MomentAggregate): Float64Array {
  switch (name) {
    case 'count':
    case 'm2':
    case 'm3':
    case 'm4':
      return of[name];
    case 'nan_count':
    case 'inf_count':
      return of.nonFinite;
    case 'near_zero_count':
      return of.nearZero;
    default:
      return readMoments(of, name);
  }
}

const ALL: readonly MomentAggregate[] = [...new Set([...SUFFICIENT, ...MOMENT_STATISTICS])];

/** What arquero keeps of a group; all operators of one pass share it. */
interface IState {
  gathered: GatheredMoments;
  cell: number;
  /** Whether it is a window's. */
  readonly stream: boolean;
}

const nothing = (): void => undefined;
/** What an operator does that reads what another one gathers. */
const IDLE = { init: nothing, add: nothing, rem: nothing };

const stateOf = (state: object): IState => state as IState;

function register(): void {
  const gather = `${BEFORE}rows`;
  aq.addAggregateFunction(
    gather,
    {
      create: () => {
        // One for all groups of a rollup, merged at once. A window's frame is merged alone.
        const all = new GatheredMoments();
        return {
          init: (of: object) => {
            const state = stateOf(of);
            state.gathered = state.stream ? new GatheredMoments() : all;
            state.cell = state.gathered.open();
          },
          add: (of: object, row: IGatheredRow) => stateOf(of).gathered.add(stateOf(of).cell, row),
          rem: (of: object) => stateOf(of).gathered.removeFirst(),
          value: () => null
        };
      },
      param: [1]
    },
    { override: true }
  );
  const add = (name: string, column: (of: IMergedMoments) => Float64Array): void =>
    aq.addAggregateFunction(
      BEFORE + name,
      {
        create: () => ({
          ...IDLE,
          value: (of: object) => stateOf(of).gathered.column(name, column)[stateOf(of).cell]
        }),
        param: [1],
        req: [gather]
      },
      { override: true }
    );
  ALL.forEach(name => add(name, of => read(of, name)));
  MOMENT_STATISTICS.forEach(name => add(`${name}_error`, of => readMomentErrors(of, name)));
  const pattern = memoized(text => readPattern(text, 'pattern'));
  aq.addFunction(`${BEFORE}has`, (name: unknown, text: unknown) => pattern(String(text)).test(String(name)), {
    override: true
  });
  aq.addFunction(
    `${BEFORE}capture`,
    (name: unknown, text: unknown) => pattern(String(text)).capture(String(name)),
    { override: true }
  );
  const parsed = memoized(parseName);
  for (const column of NAME_COLUMNS) {
    aq.addFunction(BEFORE + column, (name: unknown) => parsed(String(name))[column], { override: true });
  }
}

function memoized<T>(ask: (text: string) => T): (text: string) => T {
  const answers = new Map<string, T>();
  return text => {
    const known = answers.get(text) ?? ask(text);
    if (answers.size > 100_000) {
      answers.clear();
    }
    answers.set(text, known);
    return known;
  };
}

function expression(name: string, columns: readonly GatheredColumn[]): string {
  return `d => op.${BEFORE}${name}({${columns.map(column => `${column}: d.${column}`).join(', ')}})`;
}

type Aggregate = () => string;

/**
 * What a rollup of rows of moments can hold. Each is an expression for arquero's `rollup`, `derive` or
 * `rolling`.
 */
export interface IMomentAggregates extends Readonly<Record<MomentAggregate, Aggregate>> {
  /**
   * How far a statistic may be off by the rounding of raw sums, in its own unit; of rows with a column
   * `rounding`.
   */
  error(statistic: MomentStatistic): string;
  /** All columns that rows of merged groups need to be merged again. */
  sufficient(): Record<(typeof SUFFICIENT)[number], string>;
  /** Columns that the name of each row's tensor says, for `derive`. */
  names<T extends NameColumn>(...columns: T[]): Record<T, string>;
  /** Whether the pattern is found in the name of each row's tensor, for `filter`. */
  has(pattern: string): string;
  /**
   * What the pattern's groups find in it, a point between them, for `derive`; null where nothing is found.
   */
  capture(pattern: string): string;
}

/**
 * Statistics over rows of the stream `moments`, or over rows that were merged of it: merged exactly, as if
 * all values of a group had been one tensor.
 *
 * `table.groupby('layer', 'step').rollup({ kurtosis: moments.kurtosis() })`
 */
export const moments: IMomentAggregates = {
  ...byName(ALL, name => () => expression(name, columnsOf(name))),
  error: statistic => expression(`${statistic}_error`, [...MOMENTS, 'rounding']),
  sufficient: () => byName(SUFFICIENT, name => moments[name]()),
  names: (...columns) => byName(columns, column => `d => op.${BEFORE}${column}(d.name)`),
  has: pattern => `d => op.${BEFORE}has(d.name, ${JSON.stringify(pattern)})`,
  capture: pattern => `d => op.${BEFORE}capture(d.name, ${JSON.stringify(pattern)})`
};

register();
