import { ColorScale, DARK_THEME, formatInteger, formatNumber, LIGHT_THEME, lowMagnitude } from '../../charts';
import type { TrendOptions } from '../../protocol/views.generated';
import type { IStreamRows } from '../../store/row-store';
import type { IPointed, ITextPosition } from '../../store/run-link';
import type { IMark } from '../shared/content';
import type { Control } from '../shared/control';
import { colorRangeControl, lockedWords, transformControl } from '../shared/controls';
import type { IViewDefinition } from '../shared/definition';
import type { ILinkedMarks } from '../shared/links';
import { positionShown } from '../shared/pinned-step';
import { extentOf, lockedRange } from '../shared/scale';
import type { ITip } from '../shared/table';
import { columnOf, KitView, saidOf, type Drawn, type IKit, type Said } from './kit';
import { TextPicture } from './text/text-picture';
import { quoted, tokenWords } from './text/token-words';

/** Options that a view of a text has beside its own; see `kitOptions`. */
export type KitTextOptions = Pick<Required<TrendOptions>, 'color_range' | 'steps' | 'transform'>;

/** A token as a view gives it, in reading order. */
export interface IKitToken {
  readonly text: string;
  /** What the vocabulary calls it, which is shown where it adds no text. */
  readonly piece?: string;
  /** What colours it: NaN is a value that is not finite, absent is none. */
  readonly value?: number;
  /** Its place among the others where absent. */
  readonly position?: number;
  /** What a tip says of it beside. */
  readonly facts?: Readonly<Record<string, number | string>>;
}

export interface ITextKit<O extends object> extends IKit<O, readonly IKitToken[]> {
  /** What the values are: the title of the colours. */
  readonly quantity: Said<O>;
  /** Which generated text it is, whose positions other views point at and pin; absent where it is none. */
  of?(options: Readonly<Required<O>>): Omit<ITextPosition, 'position'>;
}

/** A token with its place. */
type Placed = IKitToken & Pick<Required<IKitToken>, 'position'>;

/** Characters of a text that its summary says. */
const MOST_SAID = 300;

/** A text that a view of another package reads, token by token. */
class KitText<O extends KitTextOptions> extends KitView<O, readonly IKitToken[], ITextKit<O>> {
  // A text is read, not zoomed into.
  override readonly zooms = { axes: 'x', least: Infinity } as const;

  override get followsPosition(): boolean {
    return this.kit.of !== undefined;
  }

  override controls(): Control[] {
    const { options, t } = this;
    const choose = (change: Partial<KitTextOptions>): void => this.choose(change as Partial<O>);
    return [
      ...super.controls(),
      transformControl(t('Scale'), options.transform, transform => choose({ transform }), t),
      ...colorRangeControl(options.color_range, this._domain, choose, () => [this._values], t)
    ];
  }

  protected override get drawn(): TextPicture<Placed> {
    return this._picture;
  }

  protected override within(tokens: readonly IKitToken[]): readonly IKitToken[] | null {
    return tokens.length === 0 ? null : tokens;
  }

  protected draw(rows: readonly IKitToken[]): Drawn {
    const { env, kit, options, t } = this;
    const tokens = rows.map((each, at) => ({ ...each, position: each.position ?? at }));
    const values = (this._values = tokens.flatMap(({ value }) => value ?? []));
    const { color_range: locked, transform } = options;
    const scaleOf = (dark: boolean): ColorScale =>
      new ColorScale(extentOf([values]), transform, transform === 'log' ? lowMagnitude([values]) : NaN, {
        dark,
        range: lockedRange(locked ?? [])
      });
    this._domain = scaleOf(false).domain;
    const text = kit.of?.(options);
    const pinned = text ? positionShown(env, null, text) : null;
    const drawn = this._picture.draw({
      tokens,
      positionOf: ({ position }) => position,
      valueOf: ({ value }) => value ?? null,
      scaleOf,
      legendTitle: saidOf(kit.quantity, options),
      looked: Math.max(
        0,
        tokens.findIndex(({ position }) => position === pinned)
      ),
      lookOf: ({ position }, dark) => ({
        outline: position === pinned ? (dark ? DARK_THEME : LIGHT_THEME).text : null
      }),
      tip: token => this._tip(token)
    });
    return {
      ...drawn,
      notes: this._picture.notes,
      caption: [
        ...this._picture.lineWords((tokens.at(-1)?.position ?? -1) + 1),
        ...lockedWords(locked, [values], t)
      ],
      summary: this._summary(tokens)
    };
  }

  override pointedBy(mark: IMark): IPointed {
    const { generation = null, sequence = null } = this.kit.of?.(this.options) ?? {};
    const position = this._picture.at(mark)?.position ?? null;
    return { step: null, layer: null, position, generation, sequence };
  }

  override marksOf({ position = null, generation = null, sequence = null }: IPointed): ILinkedMarks {
    const text = this.kit.of?.(this.options);
    const isOurs = generation === (text?.generation ?? null) && (sequence ?? 0) === (text?.sequence ?? 0);
    const mark = isOurs && position !== null ? this._picture.markOf(this._picture.indexOf(position)) : null;
    return { marks: mark ? [mark] : [] };
  }

  /** The token of the highest value. */
  override insight(): IMark | null {
    const { highest } = extremes(this._picture.tokens);
    return highest && this._picture.show(this._picture.indexOf(highest.position));
  }

  private _tip({ facts = {}, piece, position, text, value }: Placed): ITip {
    const { kit, options, t } = this;
    const words = (fact: number | string): string =>
      typeof fact === 'number' ? formatNumber(fact, 4) : fact;
    return {
      heading: quoted(text === '' ? (piece ?? '') : text),
      lines: [
        { name: t('position'), value: formatInteger(position) },
        ...(value === undefined ? [] : [{ name: saidOf(kit.quantity, options), value: words(value) }]),
        ...Object.entries(facts).map(([name, fact]) => ({ name, value: words(fact) }))
      ]
    };
  }

  private _summary(tokens: readonly Placed[]): string {
    const { kit, options, t } = this;
    const quantity = saidOf(kit.quantity, options);
    const { highest, lowest, lost } = extremes(tokens);
    const where = ({ position, text, value = NaN }: Placed): [string, string, string] => [
      quoted(text),
      formatInteger(position),
      formatNumber(value, 3)
    ];
    const [first] = lost;
    return [
      first
        ? t(
            'Not finite, %1: %2 of %3 tokens, first %4 at position %5.',
            quantity,
            formatInteger(lost.length),
            formatInteger(tokens.length),
            quoted(first.text),
            formatInteger(first.position)
          )
        : '',
      highest ? t('Highest %1: %2 at position %3, %4.', quantity, ...where(highest)) : '',
      lowest && lowest !== highest ? t('Lowest %1: %2 at position %3, %4.', quantity, ...where(lowest)) : '',
      t('Text: %1', tokenWords(this._picture.text.slice(0, MOST_SAID)))
    ]
      .filter(Boolean)
      .join(' ');
  }

  private readonly _picture = new TextPicture<Placed>(this.env, this.t);
  private _values: readonly number[] = [];
  private _domain: readonly [number, number] | null = null;
}

/** The tokens of the highest and lowest value, the first of equals, and those whose value is not finite. */
function extremes(tokens: readonly Placed[]): {
  readonly highest: Placed | null;
  readonly lowest: Placed | null;
  readonly lost: readonly Placed[];
} {
  const able = tokens.filter(({ value }) => Number.isFinite(value));
  const most = (sign: 1 | -1): Placed | null =>
    able.reduce<Placed | null>(
      (best, each) => (best && sign * valueOf(best) >= sign * valueOf(each) ? best : each),
      null
    );
  const lost = tokens.filter(({ value }) => value !== undefined && !Number.isFinite(value));
  return { highest: most(1), lowest: most(-1), lost };
}

const valueOf = ({ value = NaN }: Placed): number => value;

/** A view of a text, token by token, coloured by a value. */
export const text = <O extends KitTextOptions>(kit: ITextKit<O>): IViewDefinition<O> => ({
  create: (source, env) => new KitText(source, env, kit)
});

/** Columns of a stream that hold tokens. */
interface ITokenColumns {
  readonly text: string;
  readonly value?: string;
  readonly position?: string;
  /** Names of columns, by what a tip calls them. */
  readonly facts?: Readonly<Record<string, string>>;
}

/** Rows of a stream as tokens, in the order of their positions where they have such. */
export function textOf(rows: IStreamRows, named: ITokenColumns): IKitToken[] {
  const column = (name?: string): ArrayLike<unknown> | undefined => columnOf(rows, name);
  const [texts, values, positions] = [column(named.text), column(named.value), column(named.position)];
  const facts = Object.entries(named.facts ?? {}).map(([name, each]) => [name, column(each)] as const);
  const said = (cell: unknown): number | string => (typeof cell === 'number' ? cell : String(cell ?? ''));
  const tokens = Array.from({ length: rows.length }, (_, at) => ({
    text: String(texts?.[at] ?? ''),
    ...(values && { value: Number(values[at]) }),
    ...(positions && { position: Number(positions[at]) }),
    ...(facts.length > 0 && {
      facts: Object.fromEntries(facts.map(([name, cells]) => [name, said(cells?.[at])]))
    })
  }));
  return positions ? tokens.sort((a, b) => (a.position ?? 0) - (b.position ?? 0)) : tokens;
}
