import type { ViewOptions } from '../../../protocol/views.generated';
import type { IRunSource } from '../../../store/source';
import type { Control } from '../../../views/shared/control';
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
export interface IPlanToolbar<O> {
  /** What is drawn, and of which layout. */
  readonly choices: readonly Control[];
  /** What the sliders change, and what a measured step is laid over. */
  readonly titles: { readonly whatIf: string; readonly measured: string };
  /** What takes changed settings back; empty where none is changed. */
  readonly changed: Partial<O>;
  /** The sliders; null before anything was read. */
  readonly sliders: () => readonly Control[] | null;
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
    const { choices, titles, changed, sliders } = this.toolbar();
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
                change: (measured: boolean) => env.choose({ measured } as Partial<O>)
              } as const
            ]
          : []),
        ...(Object.keys(changed).length > 0
          ? [
              {
                kind: 'chip',
                id: 'changed',
                text: t('changed'),
                title: t('Go back to what was measured, or the usual'),
                remove: () => env.choose(changed)
              } as const
            ]
          : [])
      ],
      folded: { label: t('What if'), controls: this._isOpen ? sliders() : null }
    };
  }

  dispose(): void {
    this.reader.dispose();
  }

  protected abstract toolbar(): IPlanToolbar<O>;

  private _isOpen = false;
}
