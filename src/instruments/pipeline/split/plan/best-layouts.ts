import type { SplitLayout } from '../protocol/split.generated';
import type { SplitSimulation } from './split-simulation';

export interface ICostedLayout {
  readonly layout: SplitLayout;
  readonly stepMs: number;
}

/** The few best of the layouts tried that fit in memory, each once; of equals the first stays in front. */
export class BestLayouts {
  /**
   * @param isLenient - Whether layouts over the memory limit are retained, too, behind all others.
   */
  constructor(
    private readonly simulation: SplitSimulation,
    private readonly most: number,
    private readonly isLenient = false
  ) {}

  readonly found: ICostedLayout[] = [];
  /** Operations that were simulated: what the search has cost. */
  work = 0;
  /** Layouts that were tried, and the least by which one exceeded the memory. */
  tried = 0;
  leastOver = Infinity;

  /** Try a layout, which may then change. Returns ms of its step; if over memory, a huge penalty. */
  offer(layout: SplitLayout): number {
    const { stepMs, overBytes } = this.simulation.cost(layout);
    this.work += 3 * layout.stages.length * this.simulation.microBatches;
    this.tried += 1;
    this.leastOver = Math.min(this.leastOver, overBytes);
    const rank = overBytes > 0 ? 1e30 * (1 + overBytes) : stepMs;
    if (overBytes === 0 || this.isLenient) {
      this.keep(layout, rank);
    }
    return rank;
  }

  /** The shortest step so far, far above any where none fits in memory. */
  get leastMs(): number {
    return this.found[0]?.stepMs ?? Infinity;
  }

  private keep(layout: SplitLayout, stepMs: number): void {
    const { found, most } = this;
    if (found.length < most || stepMs < found[most - 1]!.stepMs) {
      const at = found.findIndex(each => stepMs < each.stepMs);
      const index = at < 0 ? found.length : at;
      const key = JSON.stringify(layout);
      // The same has the same ms, and so stands right before the place.
      for (let same = index - 1; same >= 0 && found[same]!.stepMs === stepMs; same -= 1) {
        if (JSON.stringify(found[same]!.layout) === key) {
          return;
        }
      }
      found.splice(index, 0, {
        layout: { ...layout, stages: layout.stages.map(stage => ({ ...stage })) },
        stepMs
      });
      found.length = Math.min(found.length, most);
    }
  }
}
