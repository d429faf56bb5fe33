import type { ViewOptions } from '../../../../protocol/views.generated';
import type { IRunSource, SourceChange } from '../../../../store/source';
import type { Loaded } from '../../../../views/shared/content';
import { flagWords } from '../../../../views/shared/describe';
import { layerName } from '../../../../views/shared/layers';
import { ViewModel, type IViewEnvironment } from '../../../../views/shared/view-model';
import type { IProjected, ProjectionChoice, ProjectionReader } from './projection-reader';
import { projectionState } from './projection-states';
import { TokenGroup } from './token-group';

/** What the parts of the view share: one reading and projecting. */
export abstract class ProjectionPane extends ViewModel {
  constructor(
    source: IRunSource,
    env: IViewEnvironment,
    protected readonly reader: ProjectionReader
  ) {
    super(source, env);
  }

  get subject(): string {
    const { flag, part } = this.wished;
    return flagWords(this.source.hello, flag, part ?? this.reader.shape.parts[0] ?? null, this.t);
  }

  concerns(change: SourceChange): boolean {
    return this.reader.concerns(change);
  }

  async load(signal: AbortSignal): Promise<Loaded> {
    const waits = (layer: number): void =>
      this.env.waits(this.t('Projecting %1, %2…', this.subject, layerName(layer, this.t)));
    const found = await this.reader.read(this.wished, signal, waits);
    if (found.kind === 'projected') {
      return this.show(found);
    }
    const { actions, source, t } = this;
    const choose = (options: Partial<ProjectionChoice>): void => this.pick(options);
    return {
      state: await projectionState(found, {
        source,
        options: this.wished,
        shape: this.reader.shape,
        actions,
        choose,
        t
      })
    };
  }

  /** Draw what was projected. */
  protected abstract show(projected: IProjected): Loaded;

  protected get wished(): ProjectionChoice {
    return this.options as ProjectionChoice;
  }

  protected pick(options: Partial<ProjectionChoice>): void {
    this.choose(options as Partial<ViewOptions>);
  }

  /** The tokens that are looked at together. */
  protected groupOf({ text }: IProjected): TokenGroup {
    return TokenGroup.read(this.wished.group, text.tokens);
  }
}
