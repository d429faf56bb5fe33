import { contrastColor, formatInteger, type Row } from '../../../../charts';
import type { SplitOptions } from '../../../../protocol/views.generated';
import { LanePicture, type ILanePiece } from '../../../../views/kits/lanes/lane-picture';
import type { IContent, Loaded } from '../../../../views/shared/content';
import type { ITip } from '../../../../views/shared/table';
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

/** A process in its cell: a row for each stage, a coordinator's above them. */
interface ICell extends ILanePiece {
  readonly process: IMappedProcess;
  readonly x: number;
}

/** The cells of processes, those of each stage in their order. */
function cellsOf({ processes }: IRankMap): ICell[] {
  const above = processes[0]?.role === 'coordinator' ? 1 : 0;
  const next = new Map<number, number>();
  return processes.map(process => {
    const lane = process.pipeline + above;
    const x = next.get(lane) ?? 0;
    next.set(lane, x + 1);
    return { process, x, lane, begin: x - 0.5, end: x + 0.5, kind: process.role };
  });
}

const roleColor = (role: ProcessRole, isDark: boolean): string => kindColor(SPANS[role], isDark);

export class RolesPane extends SplitPane {
  override readonly subject = this.t('Roles of processes');

  protected show(read: ISplitRead, drawn: ISplitPlanned | null): Loaded {
    const { t } = this;
    const map = rankMap(mapRequest(this.options, read, drawn));
    const { processes } = map;
    const cells = cellsOf(map).filter(({ x, lane }) => x < MOST_ACROSS && lane < MOST_ROWS);
    return {
      content: {
        title: t(
          'Roles of %1 processes: tensor parallel %2, stages %3, replicas %4',
          formatInteger(processes.length),
          formatInteger(map.tensor),
          formatInteger(map.stages),
          formatInteger(map.replicas)
        ),
        caption: this._caption(map, processes.length - cells.length),
        summary: t('There are %1 processes: %2.', formatInteger(processes.length), countWords(processes)),
        ...this._draw(cells)
      }
    };
  }

  protected override get drawn(): LanePicture<ICell> {
    return this._picture;
  }

  private _draw(cells: readonly ICell[]): Pick<IContent, 'extent' | 'printed' | 'recipe'> {
    const { env, t } = this;
    const above = cells[0]?.kind === 'coordinator' ? 1 : 0;
    const columns = 1 + Math.max(...cells.map(({ x }) => x));
    const rows = 1 + Math.max(...cells.map(({ lane }) => lane));
    const height = Math.max(ROW.least, Math.min(ROW.usual, ROW.most / rows));
    const space = env.width / columns;
    const { extent, printed, recipe } = this._picture.draw({
      template: 'pipeline',
      pieces: cells,
      x: [-0.5, columns - 0.5],
      rows,
      names: Object.fromEntries(
        Array.from({ length: rows }, (_, row) => [row, row < above ? '' : formatInteger(row - above)])
      ),
      ticks: Array.from({ length: rows }, (_, row) => row),
      height: rows * height,
      texts: { xTitle: t('process of the stage'), yTitle: t('stage'), colorTitle: t('role') },
      kinds: ROLES.filter(role => cells.some(({ kind }) => kind === role)).map(role => ({
        id: role,
        name: roleWords(role, t)
      })),
      hidden: [],
      hide: () => undefined,
      colorOf: (role, dark) => roleColor(role as ProcessRole, dark),
      bars: ({ x, lane, process }, dark) => [
        { x: x - HALF, x2: x + HALF, y: lane - HALF, y2: lane + HALF, color: roleColor(process.role, dark) }
      ],
      words: ({ process }) => this._words(process),
      tip: ({ process }) => this._tip(process),
      more: dark => {
        const ink = inkOf(dark);
        return {
          params: { wholes: true, lineColor: ink.line, textColor: ink.text },
          datasets: {
            numbers: height < 2 * LETTER ? [] : cells.map(cell => this._number(cell, space, dark)),
            headings: [],
            ends: [],
            path: []
          }
        };
      }
    });
    return { extent, printed, recipe };
  }

  private _tip({ real, role, pipeline, replica, tensor, virtual }: IMappedProcess): ITip {
    const { t } = this;
    return {
      heading: t('rank %1', formatInteger(real)),
      lines: [
        { name: t('role'), value: roleWords(role, t), color: roleColor(role, this.env.isDark) },
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

  /** The rank, with the virtual ranks that it stands for where there is room. */
  private _number({ x, lane, process }: ICell, space: number, isDark: boolean): Row {
    const { real, role, virtual } = process;
    const [first, last] = [virtual[0], virtual.at(-1)];
    const range =
      first === undefined || last === undefined
        ? ''
        : first === last
          ? this.t('v%1', formatInteger(first))
          : this.t('v%1–%2', formatInteger(first), formatInteger(last));
    const long = [formatInteger(real), ...(range === '' ? [] : [`(${range})`])].join(' ');
    const text = long.length * LETTER + 6 < space ? long : formatInteger(real);
    return {
      x,
      x1: x - HALF,
      x2: x + HALF,
      y: lane,
      text,
      room: text.length * LETTER,
      color: contrastColor(roleColor(role, isDark))
    };
  }

  private _words({ real, role, pipeline, replica, virtual }: IMappedProcess): string {
    const { t } = this;
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

  private _caption({ layout, processes, ranks }: IRankMap, left: number): string[] {
    const { t } = this;
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

  private readonly _picture = new LanePicture<ICell>(this.env);
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
