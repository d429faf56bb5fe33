/** The steps that have rows, ascending, each with its number of rows. */
export class StepIndex {
  /** The steps. The same array until something changes; readers may keep it. */
  get steps(): readonly number[] {
    this.sorted ??= [...this.counts.keys()].sort((a, b) => a - b);
    return this.sorted;
  }

  add(step: number): void {
    const count = this.counts.get(step) ?? 0;
    this.counts.set(step, count + 1);
    if (count === 0) {
      this.sorted = null;
    }
  }

  remove(step: number): void {
    const count = this.counts.get(step) ?? 0;
    if (count > 1) {
      this.counts.set(step, count - 1);
    } else if (this.counts.delete(step)) {
      this.sorted = null;
    }
  }

  private readonly counts = new Map<number, number>();
  private sorted: readonly number[] | null = null;
}
