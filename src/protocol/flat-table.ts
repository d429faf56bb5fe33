import { badFrame } from './frame';

/**
 * A FlatBuffers table, read with every access checked against the bytes that are there.
 *
 * Arrow's metadata are FlatBuffers: tables whose fields are found through a small table of offsets. The Arrow
 * reader follows those offsets without looking, so the guard walks them here first.
 */
export class FlatTable {
  /** @param reference - Where the offset of the table stands. */
  constructor(
    private readonly view: DataView,
    reference: number
  ) {
    this.start = this.follow(reference);
    this.vtable = this.start - view.getInt32(inside(view, this.start, 4), true);
    this.size = view.getInt16(inside(view, this.vtable, 4), true);
    if (this.size < 4 || this.size % 2 !== 0) {
      throw badFrame('The Arrow metadata of a data frame are broken: a table has an impossible size.');
    }
    inside(view, this.vtable, this.size);
  }

  /**
   * Where a field's `bytes` bytes stand; null when it is absent. `slot` is its offset in the vtable: 4, 6, 8
   * …
   */
  at(slot: number, bytes: number): number | null {
    const offset = slot < this.size ? this.view.getInt16(this.vtable + slot, true) : 0;
    return offset === 0 ? null : inside(this.view, this.start + offset, bytes);
  }

  uint8(slot: number, fallback: number): number {
    const at = this.at(slot, 1);
    return at === null ? fallback : this.view.getUint8(at);
  }

  int16(slot: number, fallback: number): number {
    const at = this.at(slot, 2);
    return at === null ? fallback : this.view.getInt16(at, true);
  }

  int32(slot: number, fallback: number): number {
    const at = this.at(slot, 4);
    return at === null ? fallback : this.view.getInt32(at, true);
  }

  /** A 64-bit count or length: never negative, never too large to count with. */
  count(slot: number): number {
    const at = this.at(slot, 8);
    return at === null ? 0 : countAt(this.view, at);
  }

  table(slot: number): FlatTable | null {
    const at = this.at(slot, 4);
    return at === null ? null : new FlatTable(this.view, at);
  }

  /** A text of at most `most` bytes: many references to one long text would multiply it. */
  text(slot: number, most = Infinity): string | null {
    const at = this.at(slot, 4);
    if (at === null) {
      return null;
    }
    const start = this.follow(at);
    const length = this.view.getInt32(inside(this.view, start, 4), true);
    inside(this.view, start + 4, length);
    if (length > most) {
      throw badFrame('The Arrow metadata of a data frame are broken: a name is too long.', {
        expected: `at most ${most} bytes`,
        got: `${length} bytes`
      });
    }
    return new TextDecoder().decode(
      new Uint8Array(this.view.buffer, this.view.byteOffset + start + 4, length)
    );
  }

  /** Offsets of a vector's entries, of `stride` bytes each. */
  vector(slot: number, stride: number): number[] {
    const at = this.at(slot, 4);
    if (at === null) {
      return [];
    }
    const base = this.follow(at);
    const length = this.view.getInt32(inside(this.view, base, 4), true);
    inside(this.view, base + 4, length * stride);
    return Array.from({ length }, (_, index) => base + 4 + index * stride);
  }

  /** The tables of a vector; at most `most`, since each may be a reference to the same one. */
  tables(slot: number, most: number): FlatTable[] {
    const offsets = this.vector(slot, 4);
    if (offsets.length > most) {
      throw badFrame('The Arrow metadata of a data frame have too many parts.', {
        expected: `at most ${most}`,
        got: String(offsets.length)
      });
    }
    return offsets.map(at => new FlatTable(this.view, at));
  }

  private follow(reference: number): number {
    return reference + this.view.getInt32(inside(this.view, reference, 4), true);
  }

  private readonly start: number;
  private readonly vtable: number;
  private readonly size: number;
}

export function countAt(view: DataView, at: number): number {
  const value = view.getBigInt64(inside(view, at, 8), true);
  if (value < 0n || value > BigInt(Number.MAX_SAFE_INTEGER)) {
    throw badFrame('The Arrow metadata of a data frame are broken: a length is impossible.', {
      got: String(value)
    });
  }
  return Number(value);
}

function inside(view: DataView, start: number, bytes: number): number {
  if (start < 0 || bytes < 0 || start + bytes > view.byteLength) {
    throw badFrame('The Arrow metadata of a data frame are broken: they point outside of themselves.');
  }
  return start;
}
