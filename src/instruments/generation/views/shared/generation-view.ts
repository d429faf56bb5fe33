import { formatInteger, ColorScale, COLORS, colorTable } from '../../../../charts';
import type { TokensOptions, LensOptions } from '../../../../protocol/views.generated';
import { ReadOnce } from '../../../../store/read-once';
import type { SourceChange } from '../../../../store/source';
import { tokenWords } from '../../../../views/kits/text/token-words';
import { type Control, selectControl } from '../../../../views/shared/control';
import { extentOf } from '../../../../views/shared/scale';
import { numberField } from '../../../../views/shared/table';
import type { Translate } from '../../../../views/shared/translate';
import { ViewModel } from '../../../../views/shared/view-model';
import { sequencesOf, type IGeneration, generationOf, readGenerations } from '../../store/generations';

/** What makes a model write texts for Megalens. */
export const SERVE = 'lab = megalens.serve(model, tokenizer)';

/** Generations that are offered by name; an older one is chosen by its number in the options. */
const MOST = 50;
/** Characters of a prompt that name its generation. */
const MOST_LETTERS = 40;

/** The beginning of a prompt, on one line. */
export function promptWords(
  generation: Pick<IGeneration, 'request' | 'sequences'>,
  sequence: number
): string {
  const letters = Array.from(tokenWords(sequencesOf(generation)[sequence]?.prompt ?? ''));
  return letters.length > MOST_LETTERS ? `${letters.slice(0, MOST_LETTERS).join('')}…` : letters.join('');
}

/** Name a generation: `3: The capital of`. */
export const generationName = (each: IGeneration): string =>
  [formatInteger(each.generation), promptWords(each, 0)].filter(Boolean).join(': ');

/**
 * The controls that choose a generation and a sequence of it. The sequence is left out where there is one.
 * @param shown - What is shown; undefined while nothing is.
 */
export function generationControls(
  offered: readonly IGeneration[],
  shown: IGeneration | undefined,
  { generation, sequence }: { readonly generation: number | null; readonly sequence: number },
  choose: (options: { generation?: number | null; sequence?: number }) => void,
  t: Translate
): Control[] {
  const newest = [...offered].reverse().slice(0, MOST);
  const numbers = new Set(newest.map(each => each.generation));
  const choices = [
    { value: '', text: t('newest') },
    ...newest.map(each => ({ value: String(each.generation), text: generationName(each) })),
    ...(generation === null || numbers.has(generation)
      ? []
      : [{ value: String(generation), text: formatInteger(generation) }])
  ];
  const count = shown?.sequences ?? 0;
  return [
    selectControl('generation', t('Generation'), String(generation ?? ''), choices, value =>
      choose({ generation: value === '' ? null : Number(value), sequence: 0 })
    ),
    ...(count < 2
      ? []
      : [
          numberField('sequence', t('Sequence'), sequence, [0, count - 1], value =>
            choose({ sequence: value })
          )
        ])
  ];
}

type TextOptions = Pick<Required<TokensOptions>, 'generation' | 'position' | 'sequence'>;

/** A view of one sequence of a generation: which it is, and which can be chosen. */
export abstract class GenerationView<O extends TextOptions> extends ViewModel<O> {
  protected abstract readonly streams: readonly string[];

  /** Whether a generation was asked for with what is drawn. */
  protected abstract has(generation: IGeneration): boolean;

  concerns(change: SourceChange): boolean {
    const isOurs = change.kind === 'rows' && this.streams.includes(change.stream);
    if (isOurs && change.stream === 'generations') {
      this._generations.renew();
    }
    return isOurs;
  }

  override zoomed(): void {
    this.env.refresh(false);
  }

  /** Read which generations exist; `asked` is that of the options, else the newest that has what is drawn. */
  protected async readGenerations(): Promise<{
    all: readonly IGeneration[];
    asked: IGeneration | undefined;
  }> {
    const { generation } = this.options;
    const all = await this._generations.read(this.source);
    this._offered = all.filter(each => this.has(each));
    return { all, asked: generationOf(generation === null ? this._offered : all, generation) };
  }

  /**
   * The controls that say which text of which run is drawn.
   * @param shown - Whose sequences are offered; undefined where there is nothing to choose.
   */
  protected textControls(shown: IGeneration | undefined): Control[] {
    const choose = (change: Partial<TextOptions>): void =>
      this.choose({ ...change, position: null } as Partial<O>);
    return [
      { kind: 'name', id: 'run', text: this.source.name },
      ...generationControls(this._offered, shown, this.options, choose, this.t)
    ];
  }

  private readonly _generations = new ReadOnce(readGenerations);
  private _offered: readonly IGeneration[] = [];
}

/** Ranks above this are spread by their magnitude. */
const MOST_LINEAR = 20;
/** Bright is sure in every picture: of surprises, entropies and ranks the low ones are. */
const REVERSED = colorTable([...COLORS.sequential].reverse());

/** The scale of numbers that say how sure a model is. Probabilities go from 0 to 1 whatever comes. */
export function surenessScale(
  values: ArrayLike<number>,
  kind: Required<LensOptions | TokensOptions>['color']
): ColorScale {
  const extent = extentOf([values]);
  if (kind === 'probability' || kind === 'final') {
    return new ColorScale(extent, 'linear', NaN, { range: [0, 1] });
  }
  const range = [0, extent?.[1] ?? 1] as const;
  const isWide = kind === 'rank' && range[1] > MOST_LINEAR;
  return new ColorScale(extent, isWide ? 'log' : 'linear', 1, { range, table: REVERSED });
}
