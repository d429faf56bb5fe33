import type { IPlace, IRecipe, Row } from '../../../charts';
import type { IContent, IMark, IMoved } from '../../shared/content';
import { axisParams, hold, moveOf, nearestIndex } from '../../shared/scale';
import type { ITip } from '../../shared/table';
import type { IPictured, IViewEnvironment } from '../../shared/view-model';
import type { ILegend } from '../lines/legend';

/** A stretch of a lane that is drawn. */
export interface ILanePiece {
  /** Number of the row that it lies in. */
  readonly lane: number;
  readonly begin: number;
  readonly end: number;
  readonly kind: string;
}

/** A bar of a piece: how high it is, and its colour; how wide, where that is not as long as the piece. */
export type Bar = Readonly<
  Record<'y' | 'y2', number> & Partial<Record<'x' | 'x2', number>> & { readonly color: string }
>;

export interface ILanesRead<P extends ILanePiece> {
  /** One whose rows are lanes. */
  readonly template: IRecipe['template'];
  /** What comes later lies over the others. */
  readonly pieces: readonly P[];
  readonly x: readonly [number, number];
  /** How many rows there are, with those that are no lanes. */
  readonly rows: number;
  /** Names of rows. */
  readonly names: Readonly<Record<number, string>>;
  /** Rows that have space for their name. */
  readonly ticks: readonly number[];
  /** Pixels of all rows. */
  readonly height: number;
  readonly texts: { readonly xTitle: string; readonly yTitle: string; readonly colorTitle: string };
  /** What the legend names. */
  readonly kinds: readonly { readonly id: P['kind']; readonly name: string }[];
  readonly hidden: readonly string[];
  readonly hide: (hidden: string[]) => void;
  colorOf(kind: P['kind'], dark: boolean): string;
  /** What a piece looks like. */
  bars(piece: P, dark: boolean): readonly Bar[];
  /** A piece in a sentence. */
  words(piece: P): string;
  tip(piece: P): ITip | null;
  /** What the template draws beside bars and key. */
  more(dark: boolean): Pick<IRecipe, 'datasets'> & { readonly params: Readonly<Record<string, unknown>> };
}

/** Stretches of time in lanes: what is drawn, what is under the pointer, and where a key goes. */
export class LanePicture<P extends ILanePiece> implements IPictured {
  constructor(private readonly _env: Pick<IViewEnvironment, 'isDark' | 'zoom'>) {}

  draw(read: ILanesRead<P>): Pick<IContent, 'extent' | 'legend' | 'printed' | 'recipe'> {
    this._read = read;
    const extent = { x: read.x, y: [-0.5, read.rows - 0.5] as const };
    const recipeIn = (dark: boolean): IRecipe => {
      const key = legendIn(read, dark).entries.filter(({ isHidden }) => !isHidden);
      const { params, datasets } = read.more(dark);
      return {
        template: read.template,
        texts: read.texts,
        params: {
          ...axisParams(extent.x, extent.y),
          rowNames: read.names,
          rowTicks: read.ticks,
          ...params,
          keyText: key.map(({ name }) => name)
        },
        datasets: {
          pieces: read.pieces.flatMap(each => rowsOf(each, read, dark)),
          ...datasets,
          key: key.map(({ color }, place) => ({ place, color }))
        },
        height: read.height
      };
    };
    const { isDark } = this._env;
    return {
      extent,
      legend: legendIn(read, isDark),
      recipe: recipeIn(isDark),
      printed: (dark = false) => recipeIn(dark)
    };
  }

  get pieces(): readonly P[] {
    return this._read?.pieces ?? [];
  }

  /** The piece of a mark; undefined when it is gone. */
  at({ x, y }: IMark): P | undefined {
    const lane = y === null ? NaN : Math.round((y[0] + y[1]) / 2);
    return this.pieces.filter(each => each.lane === lane && each.begin === x[0] && each.end === x[1]).at(-1);
  }

  markOf({ lane, begin, end }: Omit<ILanePiece, 'kind'>): IMark {
    return { facet: null, x: [begin, end], y: [lane - 0.5, lane + 0.5] };
  }

  /** What is under the pointer: the deepest where they nest. */
  probe({ x, y }: IPlace): IMark | null {
    const lane = Math.round(y);
    const found = this.pieces.filter(each => each.lane === lane && each.begin <= x && each.end >= x).at(-1);
    return found ? this.markOf(found) : null;
  }

  tipOf(mark: IMark): ITip | null {
    const piece = this.at(mark);
    return piece ? (this._read?.tip(piece) ?? null) : null;
  }

  move(key: string): IMoved | null {
    const by = moveOf(key);
    const { _cursor: before, _read: read } = this;
    const lanes = [...new Set(this.pieces.map(each => each.lane))].sort((a, b) => a - b);
    if (by === undefined || !read || lanes.length === 0) {
      return null;
    }
    // The first key shows where the cursor is.
    const [across, down] = before ? by : [0, 0];
    const lane = lanes[hold(nearestIndex(lanes, before?.lane ?? 0) + down, lanes.length)];
    const inside = read.pieces
      .filter(each => each.lane === lane)
      .sort((a, b) => a.begin - b.begin || b.end - a.end);
    const same = inside.findIndex(
      each => before?.lane === lane && each.begin === before?.begin && each.end === before.end
    );
    const near = same < 0 ? inside.findIndex(each => each.end > (before?.begin ?? 0)) : same;
    const piece = inside[hold((near < 0 ? inside.length - 1 : near) + across, inside.length)];
    if (!piece) {
      return null;
    }
    this._cursor = piece;
    this._env.zoom?.reveal((piece.begin + piece.end) / 2, piece.lane);
    const said = read.words(piece);
    return { said, mark: this.markOf(piece), ...(key === 'copy' ? { copy: said } : {}) };
  }

  private _read: ILanesRead<P> | null = null;
  private _cursor: P | null = null;
}

function legendIn<P extends ILanePiece>(read: ILanesRead<P>, dark: boolean): ILegend {
  const { colorOf, hidden, hide, kinds, texts } = read;
  const entries = kinds.map(({ id, name }) => ({
    id,
    name,
    color: colorOf(id, dark),
    isHidden: hidden.includes(id)
  }));
  return { title: texts.colorTitle, entries, hidden, hide };
}

function rowsOf<P extends ILanePiece>(piece: P, read: ILanesRead<P>, dark: boolean): Row[] {
  const [{ begin, end }, text] = [piece, read.words(piece)];
  return read.bars(piece, dark).map(bar => ({ x: begin, x2: end, ...bar, text }));
}
