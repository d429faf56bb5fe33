import type { ISchema } from './schema-check';

/** What views are about, in the order in which the panel names it. */
export type ViewGroup = 'run' | 'tensors' | 'statistics' | 'alarms' | 'time' | 'text' | 'plans';

/** Where a view is offered before one of its kind is open. */
export type ViewPlace = 'panel' | 'palette' | 'launcher';

/** What is known of a view before its code is loaded: `x-view` of `protocol/views.schema.json`. */
export interface IViewInfo {
  /** As `view` in its options. */
  readonly name: string;
  /** What it was called in options before, which is read as this name. */
  readonly was?: readonly string[];
  /** The run's method in Python; absent where only `run.view(name, …)` makes it. */
  readonly method?: string;
  /** Word of buttons and tabs. */
  readonly title: string;
  readonly summary: string;
  readonly label: string;
  /** Id of its command, `megalens:open-…` of our own. */
  readonly command: string;
  /** Under which word it stands in the panel; one of its own package where it is absent. */
  readonly group?: ViewGroup;
  /** Which views are looked at together, to watch a training or to look into a text. */
  readonly together?: 'training' | 'text';
  /** Name of a JupyterLab icon. */
  readonly icon?: string;
  readonly offer: readonly ViewPlace[];
  readonly needs: {
    /** Streams without which it is empty. */
    readonly streams: readonly string[];
    /** Whether it shows one trace point, its option `flag`. */
    readonly flag: boolean;
    /** The compressor that the flag has to be traced with. */
    readonly compressor?: string;
    /** What is told where a run has none of these. */
    readonly absent?: string;
  };
  /** Options of a first tab, beside the defaults. */
  readonly first?: Readonly<Record<string, unknown>>;
  /** The same of a run whose steps are of another phase than training, by phase. */
  readonly phases?: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  /**
   * Its place in a report that nobody chose the views of, once or for each of the first flags; absent is
   * none.
   */
  readonly report?: { readonly order: number; readonly options?: Readonly<Record<string, unknown>> };
}

export interface IViewDescriptor extends IViewInfo {
  /** JSON Schema of its options, an object without `view`; `default` of each property is filled in. */
  readonly options: ISchema;
}
