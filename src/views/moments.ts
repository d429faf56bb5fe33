import { COLORS, formatFull, formatInteger, type IPlace, type Row } from '../charts';
import type { MomentsOptions, ViewOptions } from '../protocol/views.generated';
import type { IMomentGroups } from '../store/moment-source';
import type { IPointed } from '../store/run-link';
import type { IRunSource, SourceChange } from '../store/source';
import { BaseView } from './base';
import type { IMark, IMoved, Loaded } from './content';
import type { ILinkedMarks } from './linked';
import type { Control } from './toolbar';
import type { ITip } from './tooltip';
import type { IViewHost, Mount } from './view';

/** The explorer of the stream `moments`. */
class MomentsView extends BaseView<MomentsOptions> {
  constructor(
    node: HTMLElement,
    source: IRunSource,
    options: Required<MomentsOptions>,
    host: IViewHost = {}
  ) {
    super(node, source, options, host, { axes: 'x', least: 4 });
  }

  pointedBy(mark: IMark): IPointed {
    return { step: mark.x[0], layer: null };
  }

  marksOf({ step }: IPointed): ILinkedMarks {
    return { marks: step === null ? [] : [{ facet: null, x: [step, step], y: null }] };
  }

  protected plain(): ViewOptions {
    return this.options;
  }

  protected concerns(change: SourceChange): boolean {
    return change.kind === 'rows' && change.stream === 'moments';
  }

  protected controls(): Control[] {
    return [{ kind: 'name', id: 'run', text: this.source.name }];
  }

  protected probe(place: IPlace): IMark | null {
    const step = Math.round(place.x);
    return { facet: ['panel', 0], x: [step, step], y: null };
  }

  protected tipOf(mark: IMark): ITip | null {
    const { keys, group, step, value } = this._groups;
    const places = Array.from(step.keys()).filter(at => step[at] === mark.x[0]);
    const lines = places.slice(0, 12).map(at => ({
      name: keys[group[at] ?? 0]?.join(', ') ?? '',
      value: formatFull(value[at] ?? NaN)
    }));
    return lines.length > 0 ? { heading: this.t('step %1', formatInteger(mark.x[0])), lines } : null;
  }

  protected move(): IMoved | null {
    return null;
  }

  protected async load(signal: AbortSignal): Promise<Loaded> {
    const { stat, statistic, by, pattern, where, ratio, mixed, series } = this.options;
    const steps = this.within(this.options.steps);
    const groups = await this.source.moments?.groups(
      { stat, statistic, by, pattern, where, ratio, mixed, series, steps, points: 2000 },
      signal
    );
    if (groups === undefined || groups.step.length === 0) {
      const action = { label: this.t('Check again'), run: () => this.actions.retry() };
      return { state: { kind: 'empty', sentence: this.t('This run has no statistics yet.'), action } };
    }
    this._groups = groups;
    const { keys, group, step, value } = groups;
    const rows: Row[] = Array.from(step, (x, at) => ({
      x,
      name: keys[group[at] ?? 0]?.join(', ') ?? '',
      value: Number.isFinite(value[at]) ? value[at] : null,
      panel: 0,
      kind: Number.isFinite(value[at]) ? 'line' : 'nonfinite',
      color: COLORS.nonfinite[0]
    }));
    const x = [step.reduce((a, b) => Math.min(a, b)), step.reduce((a, b) => Math.max(a, b))] as const;
    return {
      content: {
        recipe: {
          template: 'scalars',
          texts: { xTitle: this.t('step'), xLabel: 'datum.label', yScale: this.options.transform },
          params: { x0: x[0], x1: x[1], headers: { 0: statistic } },
          datasets: { rows }
        },
        extent: { x, y: [0, 1] },
        title: this.t('%1 %2, steps %3 to %4', stat, statistic, formatInteger(x[0]), formatInteger(x[1])),
        caption: [],
        summary: this.t('%1 groups', keys.length)
      }
    };
  }

  private _groups: IMomentGroups = {
    keys: [],
    group: new Uint32Array(),
    step: new Float64Array(),
    samples: new Float64Array(),
    value: new Float64Array(),
    count: new Float64Array(),
    nonFinite: new Float64Array(),
    error: new Float64Array(),
    scaled: new Uint8Array(),
    groupsTotal: 0,
    stepsTotal: 0
  };
}

/** Explore the statistics of a run. */
export const mountMoments: Mount<MomentsOptions> = (node, source, options, host) =>
  new MomentsView(node, source, options, host);
