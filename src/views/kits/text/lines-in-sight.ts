/** Lines of a text that are drawn at once. */
export const MOST_LINES = 40;

/** Which lines of a long text are in sight: the last, those about the chosen one, or those paged to. */
export class LinesInSight {
  /**
   * Return the first line, and the one after the last.
   * @param looked - Line that is looked at; null follows the end.
   */
  over(lines: number, looked: number | null): readonly [number, number] {
    const last = Math.max(0, lines - MOST_LINES);
    if (looked !== this._looked) {
      this._looked = looked;
      this._pagedTop = null;
      if (looked !== null && (looked < this._top || looked >= this._top + MOST_LINES)) {
        this._top = looked - (MOST_LINES >> 1);
      }
    }
    // Who turned to the end again follows it.
    this._pagedTop = this._pagedTop !== null && this._pagedTop < last ? this._pagedTop : null;
    this._top = Math.max(0, Math.min(this._pagedTop ?? (looked === null ? last : this._top), last));
    return [this._top, Math.min(lines, this._top + MOST_LINES)];
  }

  turn(by: -1 | 1): void {
    // One line stays, so that the eye finds its way.
    this._hold(this._top + by * (MOST_LINES - 1));
  }

  /** Bring a line into sight; answers whether others are shown now. */
  show(line: number): boolean {
    const before = this._top;
    const top = Math.max(Math.min(before, line), line - MOST_LINES + 1);
    if (top !== before) {
      this._hold(top);
    }
    return top !== before;
  }

  private _hold(top: number): void {
    this._top = Math.max(0, top);
    this._pagedTop = this._top;
  }

  private _top = 0;
  private _looked: number | null = null;
  private _pagedTop: number | null = null;
}
