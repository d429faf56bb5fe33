import { formatInteger, formatNumber } from '../../charts';
import type { IMomentGroups, MomentColumn, MomentKey } from '../../store/row-moments';
import type { IPointed } from '../../store/run-link';
import { tableOnly, type Loaded, type IMark, type INote } from '../shared/content';
import type { ILinkedMarks } from '../shared/links';
import { allHidden, hiddenWords, shownLines } from '../kits/lines/legend';
import type { ILine } from '../kits/lines/line';
import type { ILinesRequest } from '../kits/lines/line-recipe';
import { nothingYet, emptyState, type IState } from '../shared/states';
import type { Translate } from '../shared/translate';
import { shortName } from '../shared/short-name';
import { capital } from '../shared/describe';
import { numberColumn, type ITableColumn } from '../shared/table';
import { linesAcross, type PlaceOf } from './across';
import { leftWords, optionWords, trustWords } from './captions';
import { drawnValues, groupId, spans } from './line';
import { LinesPane } from './lines-pane';
import type { Along, IMapCell } from './map-cells';
import { alongOf, cellsChosen, cellText, mapGrouping, narrowed } from './map-cells';
import { markOf, OverPane } from './over-pane';
import type { MomentReader, IMomentQuestion } from './reader';
import { quantityWords, axisWords, columnWords, keyWords } from './words';
import { MomentPane } from './pane';

/** Tensors that are listed. */
const MOST_MOVES = 15;

/** How one tensor's statistic moved from its first to its last value. */
interface IGroupMove {
  readonly name: string;
  readonly first: number;
  readonly last: number;
  readonly delta: number;
  /** Change in parts of the first value; NaN where that is 0. */
  readonly relative: number;
  /** First step with values that are not finite; NaN where there is none. */
  readonly badAt: number;
}

/** How each tensor moved, those that moved most first; before them those with values that are not finite. */
export function movesOf(groups: IMomentGroups): IGroupMove[] {
  const moves = spans(groups).flatMap(([from, to], at): IGroupMove[] => {
    const values = groups.value.subarray(from, to);
    const first = values.find(Number.isFinite) ?? NaN;
    const last = values[values.length - 1] ?? NaN;
    const bad = groups.nonFinite.subarray(from, to).findIndex(count => count !== 0);
    const delta = last - first;
    const known = Number.isFinite(first) && to - from > 1;
    return known || bad >= 0
      ? [
          {
            name: String(groups.keys[at]?.[0] ?? ''),
            first,
            last,
            delta,
            relative: first === 0 ? NaN : delta / Math.abs(first),
            badAt: bad < 0 ? NaN : (groups.step[from + bad] ?? NaN)
          }
        ]
      : [];
  });
  const size = ({ delta }: IGroupMove): number => (Number.isFinite(delta) ? Math.abs(delta) : Infinity);
  const bad = ({ badAt }: IGroupMove): number => (Number.isNaN(badAt) ? Infinity : badAt);
  const order = (a: number, b: number): number => (a === b ? 0 : a < b ? -1 : 1);
  return moves.sort((a, b) => order(bad(a), bad(b)) || order(size(b), size(a)));
}

/** The tensors whose statistic moved most between the first and the last step. */
export class MovesPane extends MomentPane {
  protected async fill(reader: MomentReader, signal: AbortSignal): Promise<Loaded> {
    const { options, t } = this;
    const groups = await reader.groups({ ...this.question(['name'], 4), show: 'raw', smoothing: 0 }, signal);
    const moves = movesOf(groups);
    if (moves.length === 0) {
      return { state: nothingYet(t('Moves are known once there are two steps.'), this.actions, t) };
    }
    const quantity = quantityWords(options, t);
    const [most] = moves;
    const title = t('Largest moves of %1 between first and last step', quantity);
    return {
      content: {
        ...tableOnly({ columns: this._columns(moves), rows: Math.min(MOST_MOVES, moves.length) }),
        title,
        caption:
          moves.length > MOST_MOVES
            ? [t('%1 of %2 tensors are listed.', MOST_MOVES, formatInteger(moves.length))]
            : [],
        summary: t(
          '%1 moved most in %2: from %3 to %4.',
          capital(quantity),
          most?.name ?? '',
          formatNumber(most?.first ?? NaN, 3),
          formatNumber(most?.last ?? NaN, 3)
        )
      }
    };
  }

  private _columns(moves: readonly IGroupMove[]): ITableColumn[] {
    const { t } = this;
    const number = (title: string, name: Exclude<keyof IGroupMove, 'name'>, text?: Text): ITableColumn =>
      numberColumn(title, row => moves[row]?.[name] ?? NaN, text);
    const unless =
      (absent: string, write: Text): Text =>
      value =>
        Number.isNaN(value) ? absent : write(value);
    return [
      {
        title: t('tensor'),
        text: row => moves[row]?.name ?? '',
        sortBy: row => moves[row]?.name ?? '',
        press: row => this.open(moves[row]?.name ?? '')
      },
      number(t('first'), 'first'),
      number(t('last'), 'last'),
      number(t('change'), 'delta'),
      number(
        t('change, %'),
        'relative',
        unless('–', value => formatNumber(100 * value, 3))
      ),
      ...(moves.some(move => !Number.isNaN(move.badAt))
        ? [number(t('not finite from step'), 'badAt', unless('', formatInteger))]
        : [])
    ];
  }
}

type Text = (value: number) => string;

/** Most names under an axis, and letters of each. */
const NAMES = { most: 5, letters: 26 };

/** The chosen cells of a map as lines over steps. */
export class CellStepsPane extends LinesPane {
  override get by(): readonly MomentColumn[] {
    return mapGrouping(this.options);
  }

  protected override question(by: readonly MomentColumn[], points?: number): IMomentQuestion {
    const { options } = this;
    const keys = cellsChosen(options).map(({ key, x }) => (options.columns === 'step' ? key : [...key, x]));
    const once = new Map(keys.map(key => [groupId(key), key]));
    return { ...super.question(by, points), keys: [...once.values()] };
  }

  protected override nothing(): IState {
    return emptyCells(options => this.choose(options), this.t);
  }

  /** The map above says them. */
  protected override notes(): Promise<INote[]> {
    return Promise.resolve([]);
  }
}

/** What to say where chosen cells hold nothing. */
function emptyCells(choose: (options: { cells: string[] }) => void, t: Translate): IState {
  return emptyState(t('The chosen cells hold nothing here.'), t('Draw no lines of cells'), () =>
    choose({ cells: [] })
  );
}

interface IRead {
  readonly cell: IMapCell;
  readonly key: MomentKey;
  readonly step: number;
  readonly groups: IMomentGroups;
}

/** The chosen cells of a map as lines over something else than steps: over ranks, or tensors. */
export class CellAcrossPane extends OverPane {
  override get by(): readonly MomentColumn[] {
    return mapGrouping(this.options);
  }

  protected override nothing(): IState {
    return emptyCells(options => this.choose(options), this.t);
  }

  override pointedBy(mark: IMark): IPointed {
    return { step: this._step, layer: this._along === 'layer' ? (mark.x[0] + mark.x[1]) / 2 : null };
  }

  override marksOf({ layer }: IPointed): ILinkedMarks {
    return { marks: layer === null || this._along !== 'layer' ? [] : [markOf(layer)] };
  }

  protected override placeWords(x: number): string {
    const words = columnWords(this._along, this.t);
    return this._names?.[x] ?? `${words} ${formatInteger(x)}`;
  }

  protected async fill(reader: MomentReader, signal: AbortSignal): Promise<Loaded> {
    const { options, t } = this;
    const along = this._along;
    const { wanted, step } = this.stepDrawn();
    this._step = options.columns === 'step' ? null : (step ?? null);
    const read = await Promise.all(
      cellsChosen(options).map(cell =>
        this._read(cell, options.columns === 'step' ? cell.x : step, reader, signal)
      )
    );
    const names =
      along === 'name'
        ? [...new Set(read.flatMap(({ groups }) => groups.keys.map(([name]) => String(name))))]
        : null;
    this._names = names;
    const indices = new Map(names?.map((name, at) => [name, at]));
    const placeOf: PlaceOf = value =>
      names ? (indices.get(String(value)) ?? null) : typeof value === 'number' ? value : null;
    this.all = read.flatMap(each => this._linesOf(each, placeOf));
    if (this.all.length === 0) {
      return { state: this.nothing() };
    }
    this.lines = shownLines(this.all, options.hidden);
    if (this.lines.length === 0) {
      return { state: allHidden(hidden => this.choose({ hidden }), t) };
    }
    const quantity = capital(quantityWords(options, t));
    const over = columnWords(along, t);
    const title =
      this._step === null
        ? t('%1 of chosen cells by %2', quantity, over)
        : t('%1 of chosen cells by %2, step %3', quantity, over, formatInteger(this._step));
    const left = read.reduce(
      (sum, { groups }) => sum + groups.keys.filter(([value]) => value === null).length,
      0
    );
    return {
      content: {
        ...this.compose(
          { xTitle: over, colorTitle: t('Cell'), yTitle: axisWords(options, [], t), ...namesAxis(names) },
          this.all
        ),
        title,
        caption: [
          ...(this._step === null ? [] : this.nearWords(wanted, this._step)),
          ...hiddenWords(this.all, options.hidden, t),
          ...leftWords(left, along, t),
          ...optionWords({ ...options, smoothing: 0 }, this.index, t),
          ...read.flatMap(({ groups }) => trustWords(groups, { ...options, by: [...this.by] }, t)).slice(0, 1)
        ],
        summary: this.summaryWords()
      }
    };
  }

  /** Ask for a cell along what its map does not show. */
  private async _read(
    cell: IMapCell,
    step: number | undefined,
    reader: MomentReader,
    signal: AbortSignal
  ): Promise<IRead> {
    const { columns, where = {} } = this.options;
    const rows = this.by;
    const key = columns === 'step' ? cell.key : [...cell.key, cell.x];
    // What the map is of one of is what the line goes over.
    const others = Object.fromEntries(
      Object.entries(where ?? {}).filter(([column]) => column !== this._along)
    );
    const question = {
      ...this.question([this._along as MomentColumn, ...rows]),
      where: narrowed(others, rows, key),
      smoothing: 0,
      steps: [step ?? -1, step ?? -1] as const
    };
    return { cell, key, step: step ?? -1, groups: await reader.groups(question, signal) };
  }

  private _linesOf({ cell, key, step, groups }: IRead, placeOf: PlaceOf): ILine[] {
    const words = keyWords(key, this.by, this.t);
    const isOverSteps = this.options.columns === 'step';
    const name = isOverSteps ? this.t('%1 · step %2', words, formatInteger(step)) : words;
    return linesAcross(
      { ...groups, value: drawnValues(groups, this.options) },
      0,
      () => name,
      () => name,
      cellText(cell),
      placeOf
    )
      .filter(line => line.key === groupId(key))
      .map(line => ({ ...line, key: cellText(cell) }));
  }

  private get _along(): Along {
    return alongOf(this.options);
  }

  private _step: number | null = null;
  private _names: readonly string[] | null = null;
}

/** Labels of an axis of names, as Vega expressions: as many as there is room for. */
function namesAxis(names: readonly string[] | null): Pick<ILinesRequest['texts'], 'xLabel' | 'xTicks'> {
  if (names === null) {
    return {};
  }
  const texts = names.map(name => shortName(name, NAMES.letters));
  return {
    xLabel: `${JSON.stringify(texts)}[datum.value] || ''`,
    xTicks: `sequence(max(0, ceil(x0)), min(${names.length - 1}, x1) + 1e-6, max(1, ceil((x1 - x0) / ${NAMES.most})))`
  };
}
