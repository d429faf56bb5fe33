import type { ProjectionOptions, ViewOptions } from '../../../../protocol/views.generated';
import type { IRunSource } from '../../../../store/source';
import type { Control } from '../../../../views/shared/control';
import type {
  IComposition,
  ICompositionEnvironment,
  IViewPart,
  IViewDefinition
} from '../../../../views/shared/definition';
import type { IViewEnvironment } from '../../../../views/shared/view-model';
import { GroupPane } from './group-pane';
import { PointsPane } from './points-pane';
import type { ProjectionPane } from './projection-pane';
import { ProjectionReader } from './projection-reader';

type Pane = new (source: IRunSource, env: IViewEnvironment, reader: ProjectionReader) => ProjectionPane;

/** Vectors of tokens as points of a plane, and below them the tokens of a group that is looked at. */
class ProjectionView implements IComposition {
  constructor(
    source: IRunSource,
    private readonly _env: ICompositionEnvironment<ProjectionOptions>
  ) {
    this._reader = new ProjectionReader(source);
  }

  readonly className = 'jp-MegalensMoments jp-MegalensProjection';
  readonly zoomed = 'points';
  readonly unpictured = '';

  layout(): readonly IViewPart[] {
    const { options } = this._env;
    const part = (key: string, pane: Pane, unpictured: boolean): IViewPart => ({
      key,
      className: 'jp-MegalensMoments-pane',
      unpictured,
      options: options as Required<ViewOptions>,
      create: (source, env) => new pane(source, env, this._reader)
    });
    return [
      part('points', PointsPane, false),
      ...(options.group === '' ? [] : [part('group', GroupPane, true)])
    ];
  }

  shows(key: string, isDrawn: (key: string) => boolean): boolean {
    return key === 'points' || isDrawn('points');
  }

  heard(_key: string, options: Partial<ViewOptions>): Partial<ProjectionOptions> {
    return options as Partial<ProjectionOptions>;
  }

  controls(of: (key: string) => readonly Control[]): { main: readonly Control[] } {
    return { main: of('points') };
  }

  dispose(): void {
    this._reader.dispose();
  }

  private readonly _reader: ProjectionReader;
}

export const view: IViewDefinition<ProjectionOptions> = {
  compose: (source, env) => new ProjectionView(source, env)
};
