import type { TrendOptions } from '../../protocol/views.generated';
import type { ITrendAnswer } from '../../store/line-data';
import type { IRunSource } from '../../store/source';
import type { IMark, IMoved } from '../shared/content';
import { tierWords } from '../shared/describe';
import type { IViewEnvironment } from '../shared/view-model';
import { TrendView } from '../trend/trend-view';

/** A layer and a step of a history. */
export interface IMapChoice {
  readonly layer: number;
  readonly step: number;
}

/** The map of a history: a layer × step trend in which a cell is chosen by a click or by the keys. */
export class HistoryMap extends TrendView {
  constructor(
    source: IRunSource,
    env: IViewEnvironment<TrendOptions>,
    private readonly _choose: (choice: IMapChoice) => void
  ) {
    super(source, env);
  }

  /** The chosen cell; null while nothing is drawn. */
  set choice(choice: IMapChoice | null) {
    if (!same(choice, this._choice)) {
      // What was wanted has come, or something else was chosen.
      this._wanted = null;
    }
    this._choice = choice;
    this.env.place();
  }

  override pinned(): IMark | null {
    const { _choice: choice } = this;
    return choice && this.map.series.some(each => each.layer === choice.layer)
      ? this.map.markOf(choice.step, choice.layer)
      : null;
  }

  override move(key: string): IMoved | null {
    const choice = this._wanted ?? this._choice;
    if (choice && this.map.series.some(each => each.layer === choice.layer)) {
      // The keys go on from the tensor that is shown, or that the key before asked for.
      this.map.at = choice;
    }
    const moved = super.move(key);
    if (moved && key !== 'copy') {
      this.clicked(moved.mark);
    }
    return moved;
  }

  protected override memoryWords(answer: ITrendAnswer): string[] {
    const first = Math.min(...answer.lines.map(line => line.steps[0] ?? Infinity));
    return answer.memory
      ? tierWords({ ...answer.memory, first, evictedRows: answer.evictedRows }, this.t)
      : [];
  }

  override clicked(mark: IMark): void {
    const { layer, step } = this.pointedBy(mark);
    if (layer !== null && step !== null) {
      this._wanted = { layer, step };
      this._choose(this._wanted);
    }
  }

  private _choice: IMapChoice | null = null;
  /** Chosen here and not shown yet. */
  private _wanted: IMapChoice | null = null;
}

function same(one: IMapChoice | null, other: IMapChoice | null): boolean {
  return one?.layer === other?.layer && one?.step === other?.step;
}
