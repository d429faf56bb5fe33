import { formatBytes, formatInteger, formatNumber, timeWords } from '../../../charts';
import { viewDefaults } from '../../../protocol/view-options';
import type { PipelineOptions, ViewOptions } from '../../../protocol/views.generated';
import type { Control } from '../../../views/shared/control';
import type { Translate } from '../../../views/shared/translate';
import { requestOf, type IMeasuredRun, type PartialPlanRequest } from '../plan';
import { own } from '../../../protocol/records';
import type { PipelineTimes, PlanRequest } from '../protocol/pipeline.generated';
import type { IRunSource } from '../../../store/source';
import type { IComposition, ICompositionEnvironment, IViewPart } from '../../../views/shared/definition';
import type { IViewEnvironment, ViewModel } from '../../../views/shared/view-model';

/** Views whose pictures are shown one by one, with a measured step over them. */
type PlanOptions<V = ViewOptions> = V extends unknown ? ('measured' extends keyof V ? V : never) : never;

interface IPlanReader {
  readonly last: { readonly measured: unknown } | null;
  dispose(): void;
}

/** Pictures of a plan, each by the option `kind` that shows it alone. */
export type PlanPanes<O extends PlanOptions, R> = readonly (readonly [
  kind: string,
  pane: new (source: IRunSource, env: IViewEnvironment<O>, reader: R) => ViewModel<O>
])[];

/** What a plan shows in its toolbar beside what every plan has. */
export interface IPlanToolbar {
  /** What is drawn, and of which layout. */
  readonly choices: readonly Control[];
  /** What the sliders change, and what a measured step is laid over. */
  readonly titles: { readonly whatIf: string; readonly measured: string };
  /** What of the settings can be changed, in order, and the number of each; null before anything was read. */
  readonly sliders: Readonly<Record<string, ISlider>>;
  readonly values: Readonly<Record<string, number>> | null;
}

/** Pictures of one plan above one another, and below the toolbar the sliders of what if. */
export abstract class PlanView<O extends PlanOptions, R extends IPlanReader> implements IComposition {
  constructor(
    protected readonly env: ICompositionEnvironment<O>,
    protected readonly reader: R,
    private readonly _panes: PlanPanes<O, R>
  ) {}

  readonly className = 'jp-MegalensMoments jp-MegalensPipeline';
  readonly zoomed = null;
  abstract readonly unpictured: string;

  layout(): readonly IViewPart[] {
    const { options } = this.env;
    // Parts have the options of the whole: to whoever lays them out they are those of some view.
    const whole: object = options;
    return this._panes
      .filter(([key]) => options.kind === 'all' || options.kind === key)
      .map(([key, pane]) => ({
        key,
        className: 'jp-MegalensMoments-pane',
        options: whole as Required<ViewOptions>,
        create: (source, env: object) => new pane(source, env as IViewEnvironment<O>, this.reader)
      }));
  }

  shows(_key: string, _isDrawn: (key: string) => boolean): boolean {
    return true;
  }

  heard(_key: string, options: Partial<ViewOptions>): Partial<O> {
    return options as Partial<O>;
  }

  drawn(): void {
    this.env.rearrange();
  }

  controls(of: (key: string) => readonly Control[]): {
    main: readonly Control[];
    folded: { label: string; controls: readonly Control[] | null };
  } {
    const { env } = this;
    const { options, t } = env;
    const [name] = this._panes.flatMap(([key]) => of(key).filter(({ id }) => id === 'run'));
    const { choices, titles, sliders, values } = this.toolbar();
    const settings: Readonly<Record<string, unknown>> = { ...options };
    const usual: Readonly<Record<string, unknown>> = viewDefaults(options.view);
    const changed = Object.keys(sliders).filter(each => own(settings, each) !== own(usual, each));
    const choose = (change: Readonly<Record<string, unknown>>): void => env.choose(change as Partial<O>);
    return {
      main: [
        ...(name ? [name] : []),
        ...choices,
        {
          kind: 'toggle',
          id: 'what-if',
          text: t('What if'),
          title: titles.whatIf,
          pressed: this._isOpen,
          change: isOpen => {
            this._isOpen = isOpen;
            env.rearrange();
          }
        },
        ...(this.reader.last?.measured
          ? [
              {
                kind: 'toggle',
                id: 'measured',
                text: t('Measured'),
                title: titles.measured,
                pressed: options.measured === true,
                change: (measured: boolean) => choose({ measured })
              } as const
            ]
          : []),
        ...(changed.length > 0
          ? [
              {
                kind: 'chip',
                id: 'changed',
                text: t('changed'),
                title: t('Go back to what was measured, or the usual'),
                remove: () => choose(Object.fromEntries(changed.map(each => [each, own(usual, each)])))
              } as const
            ]
          : [])
      ],
      folded: {
        label: t('What if'),
        controls: this._isOpen && values ? sliderControls(sliders, settings, values, choose, t) : null
      }
    };
  }

  dispose(): void {
    this.reader.dispose();
  }

  protected abstract toolbar(): IPlanToolbar;

  private _isOpen = false;
}

export function slidersOf(t: Translate): Readonly<Record<Setting, ISlider>> {
  return {
    stages: countSlider(t('Stages'), 64),
    micro_batches: countSlider(t('Micro-batches'), 128),
    chunks: countSlider(t('Chunks'), 8),
    forward: timeSlider(t('Forward')),
    input_gradient: timeSlider(t('Input gradient')),
    weight_gradient: timeSlider(t('Weight gradients')),
    optimizer: timeSlider(t('Optimizer')),
    latency: { ...timeSlider(t('Latency')), least: 0.001 },
    bandwidth: bandwidthSlider(t),
    jitter: percentSlider(t('Jitter'), 100, t),
    message_mb: sizeSlider(t('Message')),
    activation_mb: sizeSlider(t('Activations')),
    weight_mb: sizeSlider(t('Weights')),
    memory_gb: memorySlider(t('Memory'), t)
  };
}

export interface ISlider {
  readonly label: string;
  readonly least: number;
  readonly most: number;
  readonly scale: 'log' | 'whole';
  readonly say: (value: number) => string;
  /** What the option is at the left end of a logarithmic slider; 0 by default. */
  readonly none?: null;
}

/**
 * The sliders of a plan, in order: those that are not measured, or were changed, say so by what they show.
 */
function sliderControls(
  sliders: Readonly<Record<string, ISlider>>,
  options: Readonly<Record<string, unknown>>,
  values: Readonly<Record<string, number>>,
  choose: (options: Readonly<Record<string, number | null>>) => void,
  t: Translate
): Control[] {
  return Object.entries(sliders).map(([id, { label, say, none, ...scale }]) => {
    const value = own(values, id) ?? 0;
    return {
      kind: 'slider',
      id,
      label,
      value,
      ...scale,
      text: say(value),
      title: own(options, id) === null ? t('As measured, or the usual. Drag to change it') : '',
      change: chosen => choose({ [id]: chosen === 0 && none === null ? null : chosen })
    };
  });
}

export const countSlider = (label: string, most: number, least = 1): ISlider => ({
  ...({ label, least, most, scale: 'whole' } as const),
  say: formatInteger
});

export const percentSlider = (label: string, most: number, t: Translate): ISlider => ({
  ...({ label, least: 0.1, most, scale: 'log' } as const),
  say: value => t('%1 %', formatNumber(value, 3))
});

export const bandwidthSlider = (t: Translate): ISlider => ({
  ...({ label: t('Bandwidth'), least: 0.01, most: 1000, scale: 'log' } as const),
  say: value => (value === 0 ? t('no limit') : t('%1 GB/s', formatNumber(value, 3)))
});

export const memorySlider = (label: string, t: Translate): ISlider => ({
  ...({ label, least: 0.01, most: 1000, scale: 'log', none: null } as const),
  say: value => (value === 0 ? t('no limit') : formatBytes(value * 1e9))
});

export const timeSlider = (label: string): ISlider => ({
  label,
  least: 0.01,
  most: 10_000,
  scale: 'log',
  say: timeWords
});

export const sizeSlider = (label: string): ISlider => ({
  label,
  least: 0.01,
  most: 100_000,
  scale: 'log',
  say: value => formatBytes(value * 1e6)
});

export const MB = 1e6;
export const GB = 1e9;
/** Bytes a ms of a link that carries 1 GB/s. */
export const GB_PER_S = 1e6;

type Options = Required<PipelineOptions>;

type Setting =
  | 'activation_mb'
  | 'bandwidth'
  | 'chunks'
  | 'forward'
  | 'input_gradient'
  | 'jitter'
  | 'latency'
  | 'memory_gb'
  | 'message_mb'
  | 'micro_batches'
  | 'optimizer'
  | 'stages'
  | 'weight_gradient'
  | 'weight_mb';

/** What the planner is asked, and the number that stands for each setting in it. */
export interface IWhatIf {
  readonly request: PlanRequest;
  readonly values: Readonly<Record<Setting, number>>;
}

/** What the options ask the planner, filled up with what was measured; null where nothing was. */
export function whatIf(options: Options, measured: IMeasuredRun | null): IWhatIf {
  const { bandwidth, chunks, jitter, memory_gb: memory, micro_batches: count, stages } = options;
  const times: Partial<PipelineTimes> = {
    ...chosen('forward', options.forward),
    ...chosen('input_gradient', options.input_gradient),
    ...chosen('weight_gradient', options.weight_gradient),
    ...chosen('optimizer', options.optimizer),
    ...chosen('latency', options.latency),
    ...chosen('jitter', jitter === null ? null : jitter / 100),
    ...(bandwidth === null ? {} : { bandwidth: bandwidth === 0 ? null : bandwidth * GB_PER_S }),
    message_bytes: options.message_mb * MB,
    activation_bytes: options.activation_mb * MB,
    weight_bytes: options.weight_mb * MB
  };
  const partial: PartialPlanRequest = {
    ...(stages > 0 ? { stages } : {}),
    ...(count > 0 ? { micro_batches: count } : {}),
    chunks,
    times,
    memory_bytes: memory === null ? null : memory * GB
  };
  const request = requestOf(partial, measured);
  const mean = (value: PipelineTimes['forward'] | undefined, otherwise: number): number =>
    meanOf(value ?? otherwise, request.stages);
  const forward = mean(request.times.forward, 1);
  return {
    request,
    values: {
      stages: request.stages,
      micro_batches: request.micro_batches,
      chunks,
      forward,
      input_gradient: mean(request.times.input_gradient, forward),
      weight_gradient: mean(request.times.weight_gradient, forward),
      optimizer: mean(request.times.optimizer, 0),
      latency: request.times.latency ?? 0,
      bandwidth: (request.times.bandwidth ?? 0) / GB_PER_S,
      jitter: 100 * (request.times.jitter ?? 0),
      message_mb: options.message_mb,
      activation_mb: options.activation_mb,
      weight_mb: options.weight_mb,
      memory_gb: memory ?? 0
    }
  };
}

const chosen = <K extends string>(name: K, value: number | null): Partial<Record<K, number>> =>
  (value === null ? {} : { [name]: value }) as Partial<Record<K, number>>;

/** The mean of a stage: a list holds shares of the whole. */
function meanOf(value: number | number[], stages: number): number {
  return Array.isArray(value) ? value.reduce((sum, each) => sum + each, 0) / stages : value;
}
