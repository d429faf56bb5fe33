import type { IPlace } from '../../../../charts';
import type { IRunSource, SourceChange } from '../../../../store/source';
import type { IMark, IMoved } from '../../../../views/shared/content';
import type { Control } from '../../../../views/shared/control';
import type { ITip } from '../../../../views/shared/tip';
import { ViewModel, type IViewEnvironment } from '../../../../views/shared/view-model';
import { GanttPicture } from './gantt-picture';

/** What panes of one view read together. */
export interface IRenewed {
  /** Rows have come; returns whether there is something to read anew. */
  renew(): boolean;
}

/** A picture of operations in lanes over the time of a step. */
export abstract class GanttPane<O extends object, R extends IRenewed> extends ViewModel<O> {
  constructor(
    source: IRunSource,
    env: IViewEnvironment<O>,
    protected readonly reader: R
  ) {
    super(source, env);
  }

  override readonly zooms = { axes: 'x', least: 1e-6 } as const;

  concerns(change: SourceChange): boolean {
    return change.kind === 'rows' && change.stream === 'spans' && this.reader.renew();
  }

  override controls(): Control[] {
    return [{ kind: 'name', id: 'run', text: this.source.name }];
  }

  override zoomed(): void {
    this.env.refresh(false);
  }

  override restyled(): void {
    this.env.refresh();
  }

  override probe(place: IPlace): IMark | null {
    return this.gantt.probe(place);
  }

  override tipOf(mark: IMark): ITip | null {
    return this.gantt.tipOf(mark);
  }

  override move(key: string): IMoved | null {
    return this.gantt.move(key, this.env.zoom);
  }

  /** What is seen of the axis of time; null where all is. */
  protected get seen(): readonly [number, number] | null {
    const { zoom } = this.env;
    return zoom?.isZoomed ? [zoom.domain.x0, zoom.domain.x1] : null;
  }

  protected readonly gantt = new GanttPicture(this.t);
}
