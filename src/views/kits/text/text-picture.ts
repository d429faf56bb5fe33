import type { ColorScale, IPlace, IRecipe, Row } from '../../../charts';
import { COLORS, contrastColor, DARK_THEME, formatInteger, LIGHT_THEME } from '../../../charts';
import type { IContent, IMark, IMoved, INote } from '../../shared/content';
import { axisParams, colorStrip, hold, moveOf } from '../../shared/scale';
import { tipSaid, type ITip } from '../../shared/table';
import type { Translate } from '../../shared/translate';
import type { IPictured, IViewEnvironment } from '../../shared/view-model';
import { LinesInSight, MOST_LINES } from './lines-in-sight';
import { adjacentToken, boxSpan, CELL, HALF, layOut } from './text-layout';
import type { ITextToken, ITokenBox, ITokenLayout } from './text-layout';

/** Pixels that stand beside the text: the numbers of positions. */
const BESIDE = 60;
const LEAST_COLUMNS = 16;
/** Lines that a picture has at least: of fewer it would be a stripe. */
const LEAST_LINES = 3;
/** Lines by which the picture of a growing text grows: a new height takes longer to draw than new text. */
const GROWTH = 4;

/** How a token is told from others, beside its colour. */
export interface ITokenLook {
  /** It is not there yet: its text is pale, and without a box. */
  readonly isToCome?: boolean;
  readonly isUnderlined?: boolean;
  readonly outline?: string | null;
}

export interface ITextRead<T extends ITextToken> {
  /** In reading order; at least one. */
  readonly tokens: readonly T[];
  positionOf(token: T): number;
  /** The number that colours a token; null where there is none. */
  valueOf(token: T): number | null;
  scaleOf(dark: boolean): ColorScale;
  /** What colours are. */
  readonly legendTitle: string;
  /** Index of the token that is looked at; -1 is none. */
  readonly looked: number;
  /** Whether the end is kept in sight, not what is looked at. */
  readonly isFollowing?: boolean;
  /** Whether it is being written. */
  readonly isGrowing?: boolean;
  lookOf?(token: T, dark: boolean): ITokenLook;
  tip(token: T): ITip;
}

interface IDrawnText<T extends ITextToken> extends ITextRead<T> {
  readonly layout: ITokenLayout;
  readonly columns: number;
  /** First line, and the one after the last. */
  readonly inSight: readonly [number, number];
}

/**
 * A text token by token, in boxes that are coloured by a value: what is drawn, what is under the pointer, and
 * where a key goes.
 */
export class TextPicture<T extends ITextToken> implements IPictured {
  constructor(
    private readonly _env: Pick<IViewEnvironment, 'isDark' | 'refresh' | 'width'>,
    private readonly _t: Translate
  ) {}

  draw(read: ITextRead<T>): Pick<IContent, 'extent' | 'printed' | 'recipe'> {
    const { isDark, width } = this._env;
    const columns = Math.max(LEAST_COLUMNS, Math.floor((width - BESIDE) / CELL.width));
    const layout = layOut(read.tokens, columns);
    const line = layout.boxes[layout.firstOf[read.looked] ?? -1]?.line ?? null;
    const inSight = this._lines.over(layout.lines, read.isFollowing ? null : line);
    const drawn = (this._drawn = { ...read, layout, columns, inSight });
    return {
      recipe: textRecipe(drawn, isDark, this._t),
      printed: (dark = false) => textRecipe(drawn, dark, this._t),
      extent: extentIn(drawn)
    };
  }

  /** There is nothing to point at. */
  clear(): void {
    this._drawn = null;
  }

  get tokens(): readonly T[] {
    return this._drawn?.tokens ?? [];
  }

  /** The lines that are not in sight: a sentence each, with the way to them. */
  get notes(): INote[] {
    const { _t: t } = this;
    const { layout, inSight: [from, to] = [0, 0] } = this._drawn ?? {};
    const turned = (by: -1 | 1) => (): void => {
      this._lines.turn(by);
      this._env.refresh(true);
    };
    const after = (layout?.lines ?? 0) - to;
    return [
      ...(from > 0
        ? [
            {
              text: t('%1 lines before these.', formatInteger(from)),
              action: { label: t('Show the lines before'), run: turned(-1) }
            }
          ]
        : []),
      ...(after > 0
        ? [
            {
              text: t('%1 lines after these.', formatInteger(after)),
              action: { label: t('Show the lines after'), run: turned(1) }
            }
          ]
        : [])
    ];
  }

  /**
   * Say which lines of a long text are in sight; nothing of a short one.
   *
   * @param length - Positions of the text.
   */
  lineWords(length: number): string[] {
    const { layout, inSight: [from, to] = [0, 0] } = this._drawn ?? {};
    const shown = boxesIn(this._drawn);
    const position = (box: ITokenBox | undefined): string => formatInteger(this._positionAt(box));
    return layout && layout.lines > MOST_LINES
      ? [
          this._t(
            'Lines %1 to %2 of %3: positions %4 to %5 of %6.',
            formatInteger(from + 1),
            formatInteger(to),
            formatInteger(layout.lines),
            position(shown[0]),
            position(shown.at(-1)),
            formatInteger(length)
          )
        ]
      : [];
  }

  probe({ x, y }: IPlace): IMark | null {
    const line = Math.round(y);
    const box = this._boxes.find(each => each.line === line && x >= each.x && x < each.x2);
    return box ? { facet: null, ...boxSpan(box) } : null;
  }

  /** The token of a mark; null when it is gone. */
  at({ x, y }: IMark): T | null {
    const line = y ? Math.round((y[0] + y[1]) / 2) : NaN;
    const box = this._boxes.find(each => each.line === line && each.x === x[0]);
    return this.tokens[box?.at ?? -1] ?? null;
  }

  tipOf(mark: IMark): ITip | null {
    const token = this.at(mark);
    return token && (this._drawn?.tip(token) ?? null);
  }

  move(key: string): IMoved | null {
    const [by, drawn] = [moveOf(key), this._drawn];
    if (by === undefined || !drawn) {
      return null;
    }
    const [across, down] = by;
    const last = drawn.tokens.length;
    const before = this._cursor ?? hold(drawn.looked, last);
    // The first key shows where the cursor is: at the token that is looked at.
    const isFirst = this._cursor === null && down === 0 && Number.isFinite(across);
    const at = isFirst
      ? before
      : down === 0
        ? hold(before + across, last)
        : adjacentToken(drawn.layout, before, down);
    const [token, mark] = [drawn.tokens[at], this.show(at)];
    if (!token || !mark) {
      return null;
    }
    return key === 'copy'
      ? { said: this._t('The text was copied.'), mark, copy: this.text }
      : { said: tipSaid(drawn.tip(token)), mark };
  }

  /** The text as it is copied: whole characters only. */
  get text(): string {
    return this.tokens.map(each => each.text).join('');
  }

  /** The mark of a token by its index; null where there is none. */
  markOf(index: number): IMark | null {
    const box = this._boxes[this._drawn?.layout.firstOf[index] ?? -1];
    return box ? { facet: null, ...boxSpan(box) } : null;
  }

  /** Index of the token at a position; -1 where there is none. */
  indexOf(position: number | null): number {
    return this.tokens.findIndex(each => this._drawn?.positionOf(each) === position);
  }

  /** Bring a token into sight, and the cursor there. */
  show(index: number): IMark | null {
    const mark = this.markOf(index);
    this._cursor = mark ? index : this._cursor;
    if (mark?.y && this._lines.show(Math.round((mark.y[0] + mark.y[1]) / 2))) {
      this._env.refresh(true);
    }
    return mark;
  }

  /** Marks of tokens, each as strongly lit as is said of it; null is not at all. */
  lit(strengthOf: (token: T) => number | null): IMark[] {
    return this._boxes.flatMap(box => {
      const token = this.tokens[box.at];
      const strength = token ? strengthOf(token) : null;
      return strength === null ? [] : [{ facet: null, ...boxSpan(box), strength }];
    });
  }

  private get _boxes(): readonly ITokenBox[] {
    return this._drawn?.layout.boxes ?? [];
  }

  private _positionAt(box: ITokenBox | undefined): number {
    const token = this.tokens[box?.at ?? -1];
    return token ? (this._drawn?.positionOf(token) ?? NaN) : NaN;
  }

  private readonly _lines = new LinesInSight();
  private _drawn: IDrawnText<T> | null = null;
  /** Index of the token under the keyboard's cursor. */
  private _cursor: number | null = null;
}

type Sight = Pick<IDrawnText<ITextToken>, 'inSight' | 'layout'>;

function boxesIn(drawn: Sight | null): readonly ITokenBox[] {
  const { layout, inSight: [from, to] = [0, 0] } = drawn ?? {};
  return (layout?.boxes ?? []).filter(({ line }) => line >= from && line < to);
}

/** What of a picture does not depend on its colours. */
function extentIn({
  columns,
  isGrowing,
  inSight: [from, to]
}: Pick<IDrawnText<ITextToken>, 'columns' | 'inSight' | 'isGrowing'>): IContent['extent'] {
  const lines = isGrowing ? Math.ceil((to - from) / GROWTH) * GROWTH : to - from;
  return { x: [0, columns], y: [from - 0.5, from + Math.max(LEAST_LINES, lines) - 0.5] };
}

/** Draw the lines of a text that are in sight, each token in a box of its colour. */
function textRecipe<T extends ITextToken>(drawn: IDrawnText<T>, dark: boolean, t: Translate): IRecipe {
  const { tokens } = drawn;
  const boxes = boxesIn(drawn);
  const scale = drawn.scaleOf(dark);
  const rows = boxes.map(box => boxRows(box, tokens[box.at] as T, drawn, scale, dark));
  const { x, y } = extentIn(drawn);
  const isUnfinished = tokens.some(token => isLost(drawn.valueOf(token)));
  const strip = stripOf(scale, isUnfinished, t);
  const first = new Map<number, ITokenBox>();
  boxes.forEach(box => first.set(box.line, first.get(box.line) ?? box));
  return {
    template: 'tokens',
    texts: { yTitle: t('position'), legendTitle: drawn.legendTitle },
    params: {
      ...axisParams(x, y),
      rowAt: [...first.keys()],
      rowText: [...first.values()].map(({ at }) => formatInteger(drawn.positionOf(tokens[at] as T))),
      ...strip.params
    },
    datasets: {
      boxes: rows.flatMap(each => each.box),
      lines: rows.flatMap(each => each.lines),
      outlines: rows.flatMap(each => each.outline),
      texts: rows.map(each => each.text),
      legend: strip.rows
    },
    height: Math.round((y[1] - y[0]) * CELL.height)
  };
}

/** The strip that says what the colours mean, from left to right; empty where nothing is coloured. */
function stripOf(
  scale: ColorScale,
  isUnfinished: boolean,
  t: Translate
): { params: Record<string, unknown>; rows: readonly Row[] } {
  if (scale.empty && !isUnfinished) {
    return { params: { legendLow: 0, legendAt: [], legendText: [] }, rows: [] };
  }
  const { params, rows } = colorStrip(scale, false, t);
  if (!isUnfinished) {
    return { params: { ...params }, rows };
  }
  // Beside one another two labels need more room than above one another.
  return {
    params: {
      legendLow: -0.3,
      legendAt: [-0.22, ...params.legendAt],
      legendText: [t('not finite'), ...params.legendText]
    },
    rows: [...rows, { from: -0.3, to: -0.14, color: COLORS.nonfinite[0] }]
  };
}

interface IBoxRows {
  readonly box: Row[];
  readonly lines: Row[];
  readonly outline: Row[];
  readonly text: Row;
}

function boxRows<T extends ITextToken>(
  box: ITokenBox,
  token: T,
  { lookOf, valueOf }: Pick<ITextRead<T>, 'lookOf' | 'valueOf'>,
  scale: ColorScale,
  dark: boolean
): IBoxRows {
  const theme = dark ? DARK_THEME : LIGHT_THEME;
  const { x, y } = boxSpan(box);
  const place = { x: x[0], x2: x[1], y: y[0], y2: y[1] };
  const { isToCome = false, isUnderlined = false, outline = null } = lookOf?.(token, dark) ?? {};
  const value = isToCome ? null : valueOf(token);
  const [lost, crossed] = COLORS.nonfinite;
  const fill =
    value === null ? theme.grid : isLost(value) ? lost : scale.colorAt(scale.position(finite(value, scale)));
  return {
    box: isToCome ? [] : [{ ...place, color: fill }],
    lines: [
      ...(isLost(value) ? [{ ...place, color: crossed }] : []),
      ...(isUnderlined
        ? [{ x: x[0], x2: x[1], y: box.line + HALF + 0.03, y2: box.line + HALF + 0.03, color: theme.muted }]
        : [])
    ],
    outline: outline === null ? [] : [{ ...place, color: outline }],
    text: {
      // White space at its beginning would not be drawn.
      x: box.x + box.text.length - box.text.trimStart().length,
      y: box.line,
      text: box.text.trim(),
      color: isToCome ? theme.muted : value === null ? theme.text : contrastColor(fill)
    }
  };
}

/** Whether there is no number; an infinite one, such as the surprise of a token held impossible, is valid. */
const isLost = (value: number | null): boolean => value !== null && Number.isNaN(value);

/** A value beyond all others has the colour of the highest. */
const finite = (value: number, { domain }: ColorScale): number =>
  Math.min(domain[1], Math.max(domain[0], value));
