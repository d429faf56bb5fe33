import { BACKWARD, FORWARD, INPUT_GRADIENT, operationName, WEIGHT_GRADIENT } from '../operation';

/** Writes down what one stage does, one operation after the other. */
export class StageOrder {
  words: string[] = [];

  forward(virtual: number, microBatch: number): void {
    this.words.push(operationName(virtual, FORWARD, microBatch));
  }

  /** A whole backward pass. */
  backward(virtual: number, microBatch: number): void {
    this.words.push(operationName(virtual, BACKWARD, microBatch));
  }

  /** The input's gradient; the weights' gradients are owed from now on. */
  inputGradient(virtual: number, microBatch: number): void {
    this.words.push(operationName(virtual, INPUT_GRADIENT, microBatch));
    this.owed.push(operationName(virtual, WEIGHT_GRADIENT, microBatch));
  }

  /**
   * The weights' gradients that have been owed longest; nothing where none are.
   *
   * @param virtual - Of this virtual stage; of any when absent.
   */
  weightGradient(virtual?: number): void {
    const at = virtual === undefined ? 0 : this.owed.findIndex(word => word.startsWith(`${virtual}W`));
    this.words.push(...this.owed.splice(at < 0 ? this.owed.length : at, 1));
  }

  /** Weights' gradients that are owed. */
  get owes(): number {
    return this.owed.length;
  }

  /** All that are owed. */
  payAll(): void {
    while (this.owes > 0) {
      this.weightGradient();
    }
  }

  /** Leave out micro-batches from one on. */
  drop(microBatch: number): void {
    this.words = this.words.filter(word => Number(word.split(/[FBIW]/)[1]) < microBatch);
  }

  private readonly owed: string[] = [];
}
