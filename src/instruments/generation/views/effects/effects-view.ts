import type { EffectsOptions } from '../../../../protocol/views.generated';
import type { IRunSource } from '../../../../store/source';
import type { IMark, Loaded, IContent } from '../../../../views/shared/content';
import { type Control, selectControl } from '../../../../views/shared/control';
import { transformControl } from '../../../../views/shared/controls';
import type { IViewDefinition } from '../../../../views/shared/definition';
import { type IState, nothingYet, snippetState } from '../../../../views/shared/states';
import type { IViewEnvironment } from '../../../../views/shared/view-model';
import { readEffects } from '../../store/effects';
import { controlOf, type IGeneration, isUnderWay, readTokens } from '../../store/generations';
import { GenerationView } from '../shared/generation-view';
import {
  EffectsPane,
  comparedName,
  divergenceRows,
  nextLines,
  type IComparedTexts,
  divergenceWords,
  type IEffectsRead,
  type ISequenceEffects,
  sequenceEffects,
  SNIPPETS
} from './effects-subject';
import {
  measureOf,
  MEASURES,
  measureWords,
  RULE_COLOR,
  peakOf,
  PositionsPicture,
  positionsSummary
} from './positions-picture';
import { SweepPane } from './sweep-pane';
import { ColorScale, formatNumber, lowMagnitude, type Row, formatInteger } from '../../../../charts';
import type { IPointed } from '../../../../store/run-link';
import type { ILinkedMarks } from '../../../../views/shared/links';
import { columnOf, positionShown } from '../../../../views/shared/pinned-step';
import { layerName } from '../../../../views/shared/layers';
import { extentOf } from '../../../../views/shared/scale';
import type { ITokenWindow, TokenTexts, ILayerCell } from '../shared/token-axis';
import { firstDrawn, tokenSpan, windowWords, LayerMap } from '../shared/token-axis';
import { sharing } from './series-picture';

/** Pixels of a layer. */
const ROW = 16;

/** How far hidden states are from the clean ones, layer × position. */
class LayersMap extends LayerMap {
  draw(
    effects: ISequenceEffects,
    texts: IComparedTexts,
    transform: 'linear' | 'log',
    axis: ITokenWindow
  ): Pick<IContent, 'extent' | 'printed' | 'recipe'> {
    const { t } = this;
    this._effects = effects;
    this._texts = texts;
    const distances = new Map(effects.positions.map(each => [each.position, each.distances]));
    return this.take({
      layers: effects.layers,
      positions: [...distances.keys()],
      axis,
      texts: texts.clean,
      pixels: ROW,
      valueOf: (layer, position) => distances.get(position)?.get(layer) ?? null,
      scaleOf: values =>
        new ColorScale(extentOf([values]), transform, transform === 'log' ? lowMagnitude([values]) : NaN),
      xTitle: t('token of the clean text, and its position'),
      legendTitle: measureWords('distance', t),
      marks: () => ({ rules: divergenceRows(texts, RULE_COLOR, t) as Row[] })
    });
  }

  /** The largest distance: where, and how large; null where none is finite. */
  get peak(): { readonly mark: IMark; readonly words: string } | null {
    let best: (ILayerCell & { readonly value: number }) | null = null;
    for (const { distances, position } of this._effects?.positions ?? []) {
      for (const layer of this.rows) {
        const value = distances.get(layer) ?? NaN;
        if (Number.isFinite(value) && value > (best?.value ?? -Infinity)) {
          best = { layer, position, value };
        }
      }
    }
    const { _texts: texts, t } = this;
    if (best === null || !texts) {
      return null;
    }
    const words = t(
      'Hidden states move most in %1 at %2: %3 of their norm.',
      layerName(best.layer, t),
      comparedName(texts, best.position, t),
      formatNumber(best.value, 3)
    );
    return { mark: this.markOfPlace(best), words };
  }

  protected wordsOf(place: ILayerCell): ReturnType<LayerMap['wordsOf']> {
    const { t, _texts: texts } = this;
    const where = texts ? comparedName(texts, place.position, t) : '';
    const value = this._distance(place);
    return {
      where,
      value,
      tip: texts && {
        heading: `${layerName(place.layer, t)}, ${where}`,
        lines: [{ name: t('relative distance'), value }, ...nextLines(texts, place.position, t)]
      }
    };
  }

  private _distance({ layer, position }: ILayerCell): string {
    const effect = this._effects?.positions.find(each => each.position === position);
    return formatNumber(effect?.distances.get(layer) ?? NaN, 3);
  }

  private _effects: ISequenceEffects | null = null;
  private _texts: IComparedTexts | null = null;
}

/** What a perturbation changed of one text by position: next tokens, or the hidden states of each layer. */
class SequencePane extends EffectsPane {
  async load(read: IEffectsRead, signal: AbortSignal): Promise<Loaded> {
    const { env } = this;
    const { options, t } = env;
    const { effects, generation } = read;
    const facts = sequenceEffects(effects, options.sequence);
    const numbers = facts.positions.map(({ position }) => position);
    if (numbers.length === 0 || (this._isByLayer && facts.layers.length === 0)) {
      const isSweep = effects.rows.some(({ point }) => point >= 0);
      return {
        state: this.otherEffects(read, numbers.length > 0 ? ['positions'] : isSweep ? ['sweep'] : [])
      };
    }
    if (!this._isByLayer && measureOf(options) === 'distance' && facts.layers.length === 0) {
      return { state: this.noDistances() };
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
    const sentence = this._isByLayer ? this._layers.peak?.words : positionsSummary(drawn, texts, t);
    const readWords = this._isByLayer
      ? t('Both read the clean text: the L2 distance of hidden states over the norm of the clean ones.')
      : t('Both read the clean text: it is what the perturbed model would have had next, not what it wrote.');
    return {
      content: {
        ...picture,
        title: this.title(read),
        caption: this.caption(read, [
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
        summary: [sentence, divergenceWords(texts, t)].filter(Boolean).join(' ')
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

  pinned(): IMark | null {
    return this._shown === null ? null : columnOf(this._shown);
  }

  override pointedBy(mark: IMark): IPointed {
    const { _read: read } = this;
    const { layer, position } = this._isByLayer
      ? this._layers.coordinatesOf(mark)
      : { layer: null, position: Math.round((mark.x[0] + mark.x[1]) / 2) };
    const { sequence } = this.env.options;
    return { step: null, layer, generation: read?.generation.generation ?? null, sequence, position };
  }

  override marksOf({ layer, position, generation, sequence }: IPointed): ILinkedMarks {
    const { _read: read } = this;
    // Both texts have the position, the clean one and the other.
    const isHere =
      (generation === read?.generation.generation || generation === read?.control) &&
      sequence === this.env.options.sequence;
    const row = this._isByLayer && layer !== null ? this._layers.rowOf(layer) : null;
    const column = isHere && typeof position === 'number' ? [columnOf(position)] : [];
    return { marks: [...column, ...(row ? [row] : [])] };
  }

  private async _textsOf(generation: number, signal: AbortSignal): Promise<TokenTexts> {
    const { source, env } = this;
    const tokens = generation > 0 ? await readTokens(source, generation, env.options.sequence, signal) : [];
    return new Map(tokens.map(({ position, piece }) => [position, piece]));
  }

  private get _isByLayer(): boolean {
    return this.env.options.kind === 'layers';
  }

  protected override get drawn(): LayersMap | PositionsPicture {
    return this._isByLayer ? this._layers : this._positions;
  }

  private readonly _positions = new PositionsPicture(this.env.t, this.env);
  private readonly _layers = new LayersMap(this.env.t, this.env);
  private _read: IEffectsRead | null = null;
  /** Position that is looked at; null is none in particular. */
  private _shown: number | null = null;
  /** Position of the largest KL divergence. */
  private _peak: number | null = null;
}

/** What a perturbation changed against its control: by next token, by layer, and over a sweep of settings. */
class EffectsView extends GenerationView<Required<EffectsOptions>> {
  constructor(source: IRunSource, env: IViewEnvironment<EffectsOptions>) {
    super(source, env);
    this._ofText = new SequencePane(source, env);
    this._ofSweep = new SweepPane(source, env);
  }

  protected override readonly streams = ['effects', 'generations', 'tokens'];

  override readonly zooms = { axes: 'x', least: 1 } as const;

  override get followsPosition(): boolean {
    return !this._isSweep;
  }

  readonly subject = this.t('Perturbation effects');

  protected override has({ request }: IGeneration): boolean {
    return Boolean(request?.perturb);
  }

  async load(signal: AbortSignal): Promise<Loaded> {
    const { options, source } = this;
    const { all, asked: generation } = await this.readGenerations();
    this._shown = generation;
    // A sweep is over all sequences.
    const where = this._isSweep ? {} : { sequence: options.sequence };
    const effects = generation && (await readEffects(source, generation.generation, where, signal));
    if (!generation || !effects || effects.rows.length === 0) {
      return { state: this._nothing() };
    }
    const control = controlOf(all, generation)?.generation ?? effects.control;
    return this.drawn.load({ generation, effects, control }, signal);
  }

  override controls(): Control[] {
    const { options, t } = this;
    const { kind } = options;
    const measure = measureOf(options);
    const kinds = { positions: t('positions'), layers: t('layers'), sweep: t('sweep') };
    const scale = { positions: t('Scale'), layers: t('Colours'), sweep: t('Settings') };
    const measures = MEASURES[kind].map(value => ({ value, text: measureWords(value, t) }));
    return [
      ...this.textControls(this._isSweep ? undefined : this._shown),
      selectControl('kind', t('Draw'), kind, kinds, next => this.choose({ kind: next })),
      ...(measures.length < 2
        ? []
        : [
            selectControl('measure', t('Measure'), measure, measures, next => this.choose({ measure: next }))
          ]),
      // What changes or does not has no scale.
      ...(measure === 'changed' && !this._isSweep
        ? []
        : [transformControl(scale[kind], options.transform, transform => this.choose({ transform }), t)])
    ];
  }

  override clicked(mark: IMark): void {
    this.drawn.clicked?.(mark);
  }

  override pinned(): IMark | null {
    return this.drawn.pinned();
  }

  override insight(): IMark | null {
    return this.drawn.insight;
  }

  private get _isSweep(): boolean {
    return this.options.kind === 'sweep';
  }

  protected override get drawn(): EffectsPane {
    return this._isSweep ? this._ofSweep : this._ofText;
  }

  /** Why there is nothing to draw, where no effect is here. */
  private _nothing(): IState {
    const { actions, options, t, _shown: generation } = this;
    if (generation?.request?.perturb) {
      const number = formatInteger(generation.generation);
      const sentence = isUnderWay(generation)
        ? t('Generation %1 has not been compared with its clean control yet.', number)
        : generation.state === 'finished'
          ? t('Nothing is here of what the perturbation of generation %1 changed.', number)
          : t('Generation %1 ended before it was compared. %2', number, generation.message).trim();
      return nothingYet(sentence, actions, t);
    }
    const code = SNIPPETS[options.kind];
    if (options.generation !== null) {
      const number = formatInteger(options.generation);
      const sentence = generation
        ? t('Generation %1 was written without a perturbation. In a cell:', number)
        : t('There is no generation %1. In a cell:', number);
      const newest = {
        label: t('Show the newest'),
        run: () => this.choose({ generation: null, sequence: 0 })
      };
      return snippetState(sentence, code, actions, t, [newest]);
    }
    const sentence = t('No text was written under a perturbation. In a cell:');
    return snippetState(sentence, code, actions, t);
  }

  private readonly _ofText: EffectsPane;
  private readonly _ofSweep: EffectsPane;
  private _shown: IGeneration | undefined;
}

export const view: IViewDefinition<EffectsOptions> = {
  create: (source, env) => new EffectsView(source, env)
};
