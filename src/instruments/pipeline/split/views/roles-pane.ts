import { contrastColor, formatInteger, type IPlace, type IRecipe, type Row } from '../../../../charts';
import type { SplitOptions } from '../../../../protocol/views.generated';
import type { IContent, IMark, IMoved, Loaded } from '../../../../views/shared/content';
import type { ITip } from '../../../../views/shared/table';
import { hold, moveOf, axisParams } from '../../../../views/shared/scale';
import type { Translate } from '../../../../views/shared/translate';
import { kindColor } from '../../../../views/shared/span-kinds';
import { inkOf } from '../../views/gantt-pane';
import { type IMappedProcess, type IRankMap, type ProcessRole, countWords, rankMap } from '../plan/rank-map';
import type { ISplitPlanned } from '../plan/planned-split';
import type { RankMapName } from '../protocol/split.generated';
import { SplitPane, roleWords, type ISplitRead } from './split-pane';

/** Pixels of a row, and of the letters in a cell. */
const ROW = { usual: 34, least: 8, most: 700 };
const LETTER = 6;
/** Part of a cell on either side of its middle that is filled. */
const HALF = 0.46;
/** Most processes of a stage, and most stages, that are drawn. */
const MOST_ACROSS = 64;
const MOST_ROWS = 48;
const ROLES: readonly ProcessRole[] = ['forward', 'backward', 'coordinator'];
const SPANS: Readonly<Record<ProcessRole, string>> = {
  forward: 'forward',
  backward: 'backward',
  coordinator: 'collective'
};

interface ICell {
  readonly process: IMappedProcess;
  readonly x: number;
  readonly y: number;
}

/** Processes in cells: a row for each stage, a coordinator's above them. */
class RolesPicture {
  constructor(private readonly _t: Translate) {}

  /** How many processes the last drawing left out. */
  left = 0;

  draw(map: IRankMap, width: number, isDark: boolean): Pick<IContent, 'extent' | 'printed' | 'recipe'> {
    const { _t: t } = this;
    const above = map.processes[0]?.role === 'coordinator' ? 1 : 0;
    const next = new Map<number, number>();
    const cells = map.processes.map((process): ICell => {
      const y = process.pipeline + above;
      const x = next.get(y) ?? 0;
      next.set(y, x + 1);
      return { process, x, y };
    });
    this._cells = cells.filter(({ x, y }) => x < MOST_ACROSS && y < MOST_ROWS);
    this.left = cells.length - this._cells.length;
    const columns = 1 + Math.max(...this._cells.map(({ x }) => x));
    const rows = 1 + Math.max(...this._cells.map(({ y }) => y));
    const height = Math.max(ROW.least, Math.min(ROW.usual, ROW.most / rows));
    const extent = { x: [-0.5, columns - 0.5] as const, y: [-0.5, rows - 0.5] as const };
    const names = Array.from({ length: rows }, (_, row): [number, string] => [
      row,
      row < above ? '' : formatInteger(row - above)
    ]);
    const space = width / columns;
    const recipeIn = (dark: boolean): IRecipe => {
      const ink = inkOf(dark);
      const roles = ROLES.filter(role => this._cells.some(({ process }) => process.role === role));
      return {
        template: 'pipeline',
        texts: { xTitle: t('process of the stage'), yTitle: t('stage'), colorTitle: t('role') },
        params: {
          ...axisParams(extent.x, extent.y),
          rowNames: Object.fromEntries(names),
          rowTicks: names.map(([row]) => row),
          wholes: true,
          lineColor: ink.line,
          textColor: ink.text,
          keyText: roles.map(role => roleWords(role, t))
        },
        datasets: {
          pieces: this._cells.map(cell => this._piece(cell, dark)),
          numbers: height < 2 * LETTER ? [] : this._cells.map(cell => this._number(cell, space, dark)),
          headings: [],
          ends: [],
          path: [],
          key: roles.map((role, index) => ({ place: index, color: roleColor(role, dark) }))
        },
        height: rows * height
      };
    };
    return { extent, recipe: recipeIn(isDark), printed: (dark = false) => recipeIn(dark) };
  }

  probe({ x, y }: IPlace): IMark | null {
    const cell = this._cells.find(each => each.x === Math.round(x) && each.y === Math.round(y));
    return cell ? markOf(cell) : null;
  }

  tipOf(mark: IMark, isDark: boolean): ITip | null {
    const { _t: t } = this;
    const cell = this._at(mark);
    if (!cell) {
      return null;
    }
    const { real, role, pipeline, replica, tensor, virtual } = cell.process;
    return {
      heading: t('rank %1', formatInteger(real)),
      lines: [
        { name: t('role'), value: roleWords(role, t), color: roleColor(role, isDark) },
        ...(role === 'coordinator'
          ? []
          : [
              { name: t('stage'), value: formatInteger(pipeline) },
              { name: t('replica'), value: formatInteger(replica) },
              { name: t('tensor'), value: formatInteger(tensor) },
              { name: t('virtual ranks'), value: virtual.map(formatInteger).join(', ') }
            ])
      ]
    };
  }

  move(key: string): IMoved | null {
    const by = moveOf(key);
    if (by === undefined || this._cells.length === 0) {
      return null;
    }
    const before = this._cursor;
    const y = before ? before.y + by[1] : 0;
    const row = this._cells.filter(each => each.y === y);
    const cell = row.length === 0 ? before : row[hold(before ? before.x + by[0] : 0, row.length)];
    if (!cell) {
      return null;
    }
    this._cursor = cell;
    const sentence = this._words(cell.process);
    return { said: sentence, mark: markOf(cell), ...(key === 'copy' ? { copy: sentence } : {}) };
  }

  private _piece(cell: ICell, isDark: boolean): Row {
    const { x, y, process } = cell;
    return {
      x: x - HALF,
      x2: x + HALF,
      y: y - HALF,
      y2: y + HALF,
      color: roleColor(process.role, isDark),
      text: this._words(process)
    };
  }

  /** The rank, with the virtual ranks that it stands for where there is room. */
  private _number({ x, y, process }: ICell, space: number, isDark: boolean): Row {
    const { real, role, virtual } = process;
    const [first, last] = [virtual[0], virtual.at(-1)];
    const range =
      first === undefined || last === undefined
        ? ''
        : first === last
          ? this._t('v%1', formatInteger(first))
          : this._t('v%1–%2', formatInteger(first), formatInteger(last));
    const long = [formatInteger(real), ...(range === '' ? [] : [`(${range})`])].join(' ');
    const text = long.length * LETTER + 6 < space ? long : formatInteger(real);
    return {
      x,
      x1: x - HALF,
      x2: x + HALF,
      y,
      text,
      room: text.length * LETTER,
      color: contrastColor(roleColor(role, isDark))
    };
  }

  private _words({ real, role, pipeline, replica, virtual }: IMappedProcess): string {
    const { _t: t } = this;
    const rank = formatInteger(real);
    return role === 'coordinator'
      ? t('Rank %1 coordinates and holds no model.', rank)
      : t(
          'Rank %1: %2 of stage %3, replica %4; virtual %5',
          rank,
          roleWords(role, t),
          formatInteger(pipeline),
          formatInteger(replica),
          virtual.map(formatInteger).join(', ')
        );
  }

  private _at({ x, y }: IMark): ICell | undefined {
    return this._cells.find(each => each.x === x[0] + 0.5 && y !== null && each.y === y[0] + 0.5);
  }

  private _cells: readonly ICell[] = [];
  private _cursor: ICell | null = null;
}

const roleColor = (role: ProcessRole, isDark: boolean): string => kindColor(SPANS[role], isDark);

const markOf = ({ x, y }: ICell): IMark => ({ facet: null, x: [x - 0.5, x + 0.5], y: [y - 0.5, y + 0.5] });

export class RolesPane extends SplitPane {
  override readonly subject = this.t('Roles of processes');

  protected show(read: ISplitRead, drawn: ISplitPlanned | null): Loaded {
    const { env, t } = this;
    const map = rankMap(mapRequest(this.options, read, drawn));
    const picture = this._picture.draw(map, env.width, env.isDark);
    return {
      content: {
        title: t(
          'Roles of %1 processes: tensor parallel %2, stages %3, replicas %4',
          formatInteger(map.processes.length),
          formatInteger(map.tensor),
          formatInteger(map.stages),
          formatInteger(map.replicas)
        ),
        caption: this._caption(map),
        summary: t(
          'There are %1 processes: %2.',
          formatInteger(map.processes.length),
          countWords(map.processes)
        ),
        ...picture
      }
    };
  }

  override probe(point: IPlace): IMark | null {
    return this._picture.probe(point);
  }

  override tipOf(mark: IMark): ITip | null {
    return this._picture.tipOf(mark, this.env.isDark);
  }

  override move(key: string): IMoved | null {
    return this._picture.move(key);
  }

  private _caption({ layout, processes, ranks }: IRankMap): string[] {
    const { t } = this;
    const { left } = this._picture;
    return [
      t(
        'A number is the rank of a process; v are the ranks that it stands for, as Megatron counts them (%1).',
        formatInteger(ranks.length)
      ),
      ...(layout === 'megafbd'
        ? [t('Rank 0 coordinates the others and holds no model, but takes a place all the same.')]
        : []),
      ...(left > 0
        ? [t('%1 of %2 processes are not drawn.', formatInteger(left), formatInteger(processes.length))]
        : [])
    ];
  }

  private readonly _picture = new RolesPicture(this.t);
}

/** The map that options ask for; missing numbers are those of the drawn layout, or of the best split. */
function mapRequest(options: Required<SplitOptions>, read: ISplitRead, drawn: ISplitPlanned | null): object {
  const family = drawn?.layout.family;
  const layout = family === 'split' || family === 'megafbd' ? drawn?.layout : read.plan.verdict.split?.layout;
  const name: RankMapName = options.rank_map;
  const isOurs = name === 'megalens';
  const pipeline = options.pipeline ?? layout?.stages.length ?? 2;
  const tensor = options.tensor ?? layout?.tensor ?? 1;
  const data = options.data ?? layout?.data ?? 1;
  const isAsDrawn = options.tensor === null || options.tensor === layout?.tensor;
  const forward = options.forward_tensor ?? (isAsDrawn ? (layout?.forward_tensor ?? tensor) : tensor);
  const hasLast = options.last_forward ?? (pipeline === 1 || layout?.stages.at(-1)?.forward_device !== null);
  return {
    layout: name,
    tensor,
    pipeline,
    data: isOurs ? data : 2 * data,
    ...(isOurs ? { forward_tensor: forward, last_forward: hasLast } : {})
  };
}
