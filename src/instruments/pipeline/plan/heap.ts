/** Whole numbers, of which the one with the least key comes out first; of equal keys the least number. */
export class Heap {
  get size(): number {
    return this.values.length;
  }

  push(key: number, value: number): void {
    const { keys, values } = this;
    let at = values.length;
    keys.push(key);
    values.push(value);
    while (at > 0) {
      const up = (at - 1) >> 1;
      if (keys[up]! < key || (keys[up] === key && values[up]! <= value)) {
        break;
      }
      keys[at] = keys[up]!;
      values[at] = values[up]!;
      at = up;
    }
    keys[at] = key;
    values[at] = value;
  }

  /** The least key; Infinity where there is none. */
  get key(): number {
    return this.keys[0] ?? Infinity;
  }

  /** The value of the least key; -1 where there is none. */
  get first(): number {
    return this.values[0] ?? -1;
  }

  /** Take the value of the least key out; -1 where there is none. */
  pop(): number {
    const { keys, values } = this;
    const first = values[0] ?? -1;
    const key = keys.pop();
    const value = values.pop();
    const count = values.length;
    if (count === 0 || key === undefined || value === undefined) {
      return first;
    }
    let at = 0;
    for (;;) {
      let down = 2 * at + 1;
      if (down >= count) {
        break;
      }
      const right = down + 1;
      if (
        right < count &&
        (keys[right]! < keys[down]! || (keys[right] === keys[down] && values[right]! < values[down]!))
      ) {
        down = right;
      }
      if (key < keys[down]! || (key === keys[down] && value <= values[down]!)) {
        break;
      }
      keys[at] = keys[down]!;
      values[at] = values[down]!;
      at = down;
    }
    keys[at] = key;
    values[at] = value;
    return first;
  }

  private readonly keys: number[] = [];
  private readonly values: number[] = [];
}
