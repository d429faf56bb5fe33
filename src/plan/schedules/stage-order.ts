import { BACKWARD, FORWARD, INPUT_GRADIENT, operationName, WEIGHT_GRADIENT } from '../operation';

/** Writes down what one stage does, one operation after the other. */
export class StageOrder {
  readonly words: string[] = [];

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

  /** The weights' gradients that have been owed longest; nothing where none are. */
  weightGradient(): void {
    if (this.paid < this.owed.length) {
      this.words.push(this.owed[this.paid++]!);
    }
  }

  /** Weights' gradients that are owed. */
  get owes(): number {
    return this.owed.length - this.paid;
  }

  /** All that are owed. */
  payAll(): void {
    while (this.owes > 0) {
      this.weightGradient();
    }
  }

  private readonly owed: string[] = [];
  private paid = 0;
}
