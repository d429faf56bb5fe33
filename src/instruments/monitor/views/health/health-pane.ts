import type { ViewOptions } from '../../../../protocol/views.generated';
import type { IRunSource, SourceChange } from '../../../../store/source';
import type { Loaded } from '../../../../views/shared/content';
import { ViewModel, type IViewEnvironment } from '../../../../views/shared/view-model';
import type { HealthChoice, HealthReader, IHealthFacts } from './health-facts';

/** What all parts of the view share: one reading of the alarms. */
export abstract class HealthPane extends ViewModel {
  constructor(
    source: IRunSource,
    env: IViewEnvironment,
    protected readonly reader: HealthReader
  ) {
    super(source, env);
  }

  readonly subject = this.t('Health');

  concerns(change: SourceChange): boolean {
    // How long a run has been healthy is told as well.
    return this.reader.concerns(change) || (change.kind === 'rows' && change.stream === 'scalars');
  }

  async load(): Promise<Loaded> {
    return this.show(await this.reader.facts(this.chosen));
  }

  /** Draw what is known. */
  protected abstract show(facts: IHealthFacts): Loaded;

  protected get chosen(): HealthChoice {
    return this.options as HealthChoice;
  }

  protected pick(options: Partial<HealthChoice>): void {
    this.choose(options as Partial<ViewOptions>);
  }
}
