import { formatInteger } from '../../../../charts';
import { readTokens } from '../../store/generations';
import type { IPointed } from '../../../../store/run-link';
import type { IMark, Loaded } from '../../../../views/shared/content';
import type { ILinkedMarks } from '../../../../views/shared/links';
import { Pictured } from '../../../../views/shared/pictured';
import { columnOf, positionShown } from '../../../../views/shared/pinned-position';
import { firstDrawn, tokenSpan, windowWords, type TokenTexts } from '../shared/token-axis';
import { divergenceWords, type IComparedTexts } from './compared-texts';
import { noDistances, otherEffects, type IEffectsAsked } from './effects-states';
import {
  effectsCaption,
  effectsTitle,
  type IEffectsPane,
  type IEffectsRead,
  type IEffectsSubject
} from './effects-subject';
import { LayersMap } from './layers-map';
import { sharing } from './places-picture';
import { sequenceEffects } from './position-facts';
import { measureOf, peakOf, PositionsPicture, positionsSummary } from './positions-picture';

/** What a perturbation changed of one text, over its positions: a measure of each next token, or the hidden states of each layer. */
export class SequencePane extends Pictured implements IEffectsPane {
  constructor(
    private readonly _of: IEffectsSubject,
    private readonly _asked: () => IEffectsAsked
  ) {
    super();
    const { t } = _of.env;
    this._positions = new PositionsPicture(t);
    this._layers = new LayersMap(t);
  }

  async load(read: IEffectsRead, signal: AbortSignal): Promise<Loaded> {
    const { env } = this._of;
    const { options, t } = env;
    const { effects, generation } = read;
    const facts = sequenceEffects(effects, options.sequence);
    const numbers = facts.positions.map(({ position }) => position);
    if (numbers.length === 0 || (this._isByLayer && facts.layers.length === 0)) {
      const isSweep = effects.rows.some(({ point }) => point >= 0);
      return {
        state: otherEffects(this._asked(), numbers.length > 0 ? ['positions'] : isSweep ? ['sweep'] : [], t)
      };
    }
    if (!this._isByLayer && measureOf(options) === 'distance' && facts.layers.length === 0) {
      return { state: noDistances(this._asked(), t) };
    }
    const texts: IComparedTexts = {
      clean: await this._textsOf(read.control, signal),
      perturbed: await this._textsOf(generation.generation, signal),
      divergence: facts.divergence
    };
    const first = firstDrawn(numbers, this._isByLayer ? facts.layers.length : 1);
    const positions = facts.positions.filter(({ position }) => position >= first);
    const drawn = { ...facts, positions };
    const axis = tokenSpan(first, numbers.at(-1) ?? first, env);
    this._read = read;
    const { sequence } = options;
    this._shown = positionShown(env, options.position, { generation: generation.generation, sequence });
    this._peak = peakOf(positions)?.position ?? null;
    const every = this._isByLayer ? 1 : sharing(axis.shown);
    const picture = this._isByLayer
      ? this._layers.draw(drawn, texts, options.transform, axis)
      : this._positions.draw(drawn, texts, { ...options, measure: measureOf(options) }, axis, env.isDark);
    const said = this._isByLayer ? this._layers.peak?.words : positionsSummary(drawn, texts, t);
    const readWords = this._isByLayer
      ? t('Both read the clean text: the L2 distance of hidden states over the norm of the clean ones.')
      : t('Both read the clean text: it is what the perturbed model would have had next, not what it wrote.');
    return {
      content: {
        ...picture,
        title: effectsTitle(read, this._of),
        caption: effectsCaption(read, this._of, [
          readWords,
          ...windowWords(axis, env, t),
          ...(every > 1
            ? [
                t(
                  'Of every %1 positions the largest value is drawn: zoom in to see each.',
                  formatInteger(every)
                )
              ]
            : [])
        ]),
        summary: [said, divergenceWords(texts, t)].filter(Boolean).join(' ')
      }
    };
  }

  get insight(): IMark | null {
    return this._isByLayer
      ? (this._layers.peak?.mark ?? null)
      : this._peak === null
        ? null
        : this._positions.goTo(this._peak);
  }

  /** The position that is looked at. */
  pinned(): IMark | null {
    return this._shown === null ? null : columnOf(this._shown);
  }

  override pointedBy(mark: IMark): IPointed {
    const { _read: read } = this;
    const { layer, position } = this._isByLayer
      ? this._layers.placeOf(mark)
      : { layer: null, position: Math.round((mark.x[0] + mark.x[1]) / 2) };
    const { sequence } = this._of.env.options;
    return { step: null, layer, generation: read?.generation.generation ?? null, sequence, position };
  }

  override marksOf({ layer, position, generation, sequence }: IPointed): ILinkedMarks {
    const { _read: read } = this;
    // Both texts have the position, the clean one and the other.
    const isHere =
      (generation === read?.generation.generation || generation === read?.control) &&
      sequence === this._of.env.options.sequence;
    const row = this._isByLayer && layer !== null ? this._layers.rowOf(layer) : null;
    const column = isHere && typeof position === 'number' ? [columnOf(position)] : [];
    return { marks: [...column, ...(row ? [row] : [])] };
  }

  private async _textsOf(generation: number, signal: AbortSignal): Promise<TokenTexts> {
    const { source, env } = this._of;
    const tokens = generation > 0 ? await readTokens(source, generation, env.options.sequence, signal) : [];
    return new Map(tokens.map(({ position, piece }) => [position, piece]));
  }

  private get _isByLayer(): boolean {
    return this._of.env.options.kind === 'layers';
  }

  protected override get drawn(): LayersMap | PositionsPicture {
    return this._isByLayer ? this._layers : this._positions;
  }

  private readonly _positions: PositionsPicture;
  private readonly _layers: LayersMap;
  private _read: IEffectsRead | null = null;
  /** Position that is looked at; null is none in particular. */
  private _shown: number | null = null;
  /** Position of the largest KL divergence. */
  private _peak: number | null = null;
}
