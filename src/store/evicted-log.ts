const MAX_BLOCKS = 256;

/** Counts the rows that were given up, by step, in bounded memory: at most 256 blocks of neighbouring steps. */
export class EvictedLog {
  get total(): number {
    return this._total;
  }

  /** Note one row. Steps mostly rise. */
  add(step: number): void {
    this._total += 1;
    const last = this.blocks[this.blocks.length - 1];
    if (last !== undefined && step <= last.last) {
      last.first = Math.min(last.first, step);
      last.rows += 1;
      return;
    }
    this.blocks.push({ first: step, last: step, rows: 1 });
    if (this.blocks.length > MAX_BLOCKS) {
      this.blocks = this.blocks.flatMap((block, index, all) => {
        const next = all[index + 1];
        return index % 2 === 1
          ? []
          : [
              next === undefined
                ? block
                : { first: Math.min(block.first, next.first), last: next.last, rows: block.rows + next.rows }
            ];
      });
    }
  }

  /** Rows given up between two steps, both inclusive. A block that lies half inside counts by its share, rounded up. */
  count(first: number, last: number): number {
    let rows = 0;
    for (const block of this.blocks) {
      const from = Math.max(first, block.first);
      const to = Math.min(last, block.last);
      if (from <= to) {
        rows += Math.ceil((block.rows * (to - from + 1)) / (block.last - block.first + 1));
      }
    }
    return rows;
  }

  private blocks: { first: number; last: number; rows: number }[] = [];
  private _total = 0;
}
