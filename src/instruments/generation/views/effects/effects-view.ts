import type { EffectsOptions } from '../../../../protocol/views.generated';
import type { IRunSource } from '../../../../store/source';
import type { IMark, IMoved, Loaded } from '../../../../views/shared/content';
import { type Control, selectControl } from '../../../../views/shared/control';
import { transformControl } from '../../../../views/shared/controls';
import type { IViewDefinition } from '../../../../views/shared/definition';
import type { IViewEnvironment } from '../../../../views/shared/view-model';
import { readEffects } from '../../store/effects';
import { controlOf, type IGeneration } from '../../store/generations';
import { GenerationView } from '../shared/generation-view';
import { noEffects, type IEffectsAsked } from './effects-states';
import type { IEffectsPane } from './effects-subject';
import { measureOf, MEASURES, measureWords } from './positions-picture';
import { SequencePane } from './sequence-pane';
import { SweepPane } from './sweep-pane';

/** What a perturbation changed against its control: by next token, by layer, and over a sweep of settings. */
class EffectsView extends GenerationView<Required<EffectsOptions>> {
  constructor(source: IRunSource, env: IViewEnvironment<EffectsOptions>) {
    super(source, env);
    const asked = (): IEffectsAsked => this._asked;
    this._ofText = new SequencePane({ source, env }, asked);
    this._ofSweep = new SweepPane({ source, env }, asked);
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
    const { options, source, t } = this;
    const { all, asked: generation } = await this.readGenerations();
    this._shown = generation;
    // A sweep is over all sequences.
    const where = this._isSweep ? {} : { sequence: options.sequence };
    const effects = generation && (await readEffects(source, generation.generation, where, signal));
    if (!generation || !effects || effects.rows.length === 0) {
      return { state: noEffects(this._asked, t) };
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

  override move(key: string): IMoved | null {
    const moved = super.move(key);
    if (moved) {
      this.env.zoom?.reveal((moved.mark.x[0] + moved.mark.x[1]) / 2, 0);
    }
    return moved;
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

  protected override get drawn(): IEffectsPane {
    return this._isSweep ? this._ofSweep : this._ofText;
  }

  private get _asked(): IEffectsAsked {
    const { actions, options, _shown: generation } = this;
    return { generation, options, choose: change => this.choose(change), actions };
  }

  private readonly _ofText: IEffectsPane;
  private readonly _ofSweep: IEffectsPane;
  private _shown: IGeneration | undefined;
}

export const view: IViewDefinition<EffectsOptions> = {
  create: (source, env) => new EffectsView(source, env)
};
