import type { TrendOptions } from '../../protocol/views.generated';
import type { IRunSource, ITensorResult } from '../../store/source';
import type { IMark, IMoved } from '../shared/content';
import { omissionWords, tierWords } from '../shared/describe';
import { TrendView } from '../trend/trend-view';
import type { IViewHost } from '../view';

/** A layer and a step of a history. */
export interface IChoice {
  readonly layer: number;
  readonly step: number;
}

/** The map of a history: a layer × step trend in which a cell is chosen by a click or by the keys. */
export class HistoryMap extends TrendView {
  constructor(
    node: HTMLElement,
    source: IRunSource,
    options: Required<TrendOptions>,
    host: IViewHost,
    private readonly _choose: (choice: IChoice) => void
  ) {
    super(node, source, options, host);
    node.addEventListener('pointerdown', this._onDown);
    node.addEventListener('click', this._onClick);
  }

  /** The chosen cell; null while nothing is drawn. */
  set choice(choice: IChoice | null) {
    if (!same(choice, this._choice)) {
      // What was wanted has come, or something else was chosen.
      this._wanted = null;
    }
    this._choice = choice;
    this._place();
  }

  pinned(): IMark | null {
    const { _choice: choice } = this;
    return choice && this.series.some(each => each.layer === choice.layer)
      ? this.markOf(choice.step, choice.layer)
      : null;
  }

  protected override move(key: string): IMoved | null {
    const choice = this._wanted ?? this._choice;
    const layer = this.series.findIndex(each => each.layer === choice?.layer);
    if (choice && layer >= 0) {
      // The keys go on from the tensor that is shown, or that the key before asked for.
      const after = this.steps.findIndex(step => step >= choice.step);
      this.at = { layer, step: after < 0 ? this.steps.length - 1 : after };
    }
    const moved = super.move(key);
    if (moved && key !== 'copy') {
      this._take(moved.mark);
    }
    return moved;
  }

  protected override keptWords(result: ITensorResult): string[] {
    return [...tierWords(result, this.t), ...omissionWords({ sampledEvery: result.sampledEvery }, this.t)];
  }

  override dispose(): void {
    this.node.removeEventListener('pointerdown', this._onDown);
    this.node.removeEventListener('click', this._onClick);
    super.dispose();
  }

  private _take(mark: IMark): void {
    const { layer, step } = this.pointedBy(mark);
    if (layer !== null && step !== null) {
      this._wanted = { layer, step };
      this._choose(this._wanted);
    }
  }

  private _onDown = (event: PointerEvent): void => {
    this._from = [event.clientX, event.clientY];
  };

  // A drag pans or chooses steps; only a click that stayed where it began means a cell.
  private _onClick = (event: MouseEvent): void => {
    const [x, y] = this._from;
    const place = this.locate(event);
    if (place && !event.shiftKey && Math.hypot(event.clientX - x, event.clientY - y) < 4) {
      const mark = this.probe(place);
      if (mark) {
        this._take(mark);
      }
    }
  };

  private _choice: IChoice | null = null;
  /** Chosen here and not shown yet. */
  private _wanted: IChoice | null = null;
  private _from: readonly [number, number] = [0, 0];
}

function same(one: IChoice | null, other: IChoice | null): boolean {
  return one?.layer === other?.layer && one?.step === other?.step;
}
