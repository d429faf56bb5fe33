import { tableFromIPC, type Column, type Table } from '@uwdata/flechette';
import { badFrame } from './frame';

type Numbers = Float64Array | Int32Array;

/**
 * Columns of rows that the Jupyter server made itself: typed arrays of their own, without an object a row.
 *
 * Frames are a training's and are checked before they are read; these are the server's, as much to be trusted
 * as the page.
 */
export class ArrowColumns {
  /** @throws ProtocolError `bad-frame` when the bytes are something else. */
  constructor(bytes: Uint8Array) {
    try {
      this.table = tableFromIPC(bytes.byteOffset % 8 === 0 ? bytes : bytes.slice());
    } catch (error) {
      throw badFrame(`The rows that the server sent could not be read: ${String(error)}`);
    }
  }

  readonly table: Table;

  get rows(): number {
    return this.table.numRows;
  }

  floats(name: string): Float64Array {
    return this.copied(name, new Float64Array(this.rows));
  }

  whole(name: string): Int32Array {
    return this.copied(name, new Int32Array(this.rows));
  }

  /** Words of a dictionary: `codes` are indices into `values`. */
  words(name: string): { readonly codes: Int32Array; readonly values: readonly string[] } {
    const column = this.column(name);
    const [first] = column.data;
    const dictionary = (first as { readonly dictionary?: Column<unknown> } | undefined)?.dictionary;
    if (first !== undefined && dictionary === undefined) {
      throw badFrame(`The column ${name} that the server sent is no dictionary.`);
    }
    const values = dictionary === undefined ? [] : Array.from(dictionary.toArray(), String);
    return { codes: this.copied(name, new Int32Array(this.rows)), values };
  }

  cell(name: string, row: number): string | number | null {
    const value: unknown = this.column(name).at(row);
    return typeof value === 'string' || typeof value === 'number' ? value : null;
  }

  private copied<T extends Numbers>(name: string, into: T): T {
    let at = 0;
    for (const { length, values } of this.column(name).data) {
      if (!(values instanceof Float64Array || values instanceof Int32Array)) {
        throw badFrame(`The column ${name} that the server sent is of another type.`);
      }
      into.set(values.subarray(0, length), at);
      at += length;
    }
    return into;
  }

  private column(name: string): Column<unknown> {
    const column: Column<unknown> | undefined = this.table.children[this.table.names.indexOf(name)];
    if (column === undefined) {
      throw badFrame(`The rows that the server sent have no column ${name}.`, {
        expected: name,
        got: this.table.names.join(', ')
      });
    }
    return column;
  }
}
