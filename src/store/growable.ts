/** A Float64Array that grows by doubling. */
export class Growable {
  get length(): number {
    return this._length;
  }

  /** A view of what is there now. Valid until the next change. */
  get view(): Float64Array {
    return this.data.subarray(0, this._length);
  }

  /** The value at an index that must be there. */
  at(index: number): number {
    return this.data[index] ?? Number.NaN;
  }

  /** Put a value in at an index from 0 to `length`. */
  insert(index: number, value: number): void {
    if (this._length === this.data.length) {
      const grown = new Float64Array(this.data.length * 2);
      grown.set(this.data);
      this.data = grown;
    }
    if (index < this._length) {
      this.data.copyWithin(index + 1, index, this._length);
    }
    this.data[index] = value;
    this._length += 1;
  }

  /** Keep only the values at these ascending indices, and give memory back. */
  keep(indices: readonly number[]): void {
    const kept = new Float64Array(Math.max(16, indices.length));
    indices.forEach((from, to) => {
      kept[to] = this.at(from);
    });
    this.data = kept;
    this._length = indices.length;
  }

  private data = new Float64Array(16);
  private _length = 0;
}
