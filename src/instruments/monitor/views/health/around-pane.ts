import { formatInteger } from '../../../../charts';
import type { MomentsOptions } from '../../../../protocol/views.generated';
import type { IAlarm } from '../../store/alarms';
import type { IRunSource } from '../../../../store/source';
import { LinesPane } from '../../../../views/moments/lines-pane';
import type { IMark, Loaded } from '../../../../views/shared/content';
import type { OtherRuns } from '../../../../views/shared/lines/other-runs';
import type { IViewEnvironment } from '../../../../views/shared/view-model';

/** The tensor of an alarm over the steps around it. */
export class AroundPane extends LinesPane {
  constructor(
    source: IRunSource,
    env: IViewEnvironment<MomentsOptions>,
    others: OtherRuns,
    private readonly _alarm: () => IAlarm | null
  ) {
    super(source, env, others);
  }

  override async load(signal: AbortSignal): Promise<Loaded> {
    const loaded = await super.load(signal);
    const alarm = this._alarm();
    if ('state' in loaded || alarm === null) {
      return loaded;
    }
    const title = this.t('%1 of %2, around step %3', this.subject, alarm.name, formatInteger(alarm.step));
    return { content: { ...loaded.content, title } };
  }

  /** The step of the alarm. */
  override pinned(): IMark | null {
    const step = this._alarm()?.step;
    return step === undefined ? null : { facet: null, x: [step, step], y: null };
  }
}
