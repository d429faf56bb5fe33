/**
 * Give the memory of a buffer back at once that nobody reads any more: a collection of garbage comes much later, and the more there is of it the more
 * a page takes. Nothing happens where buffers cannot do that.
 */
export function giveBack(buffer: ArrayBufferLike & { transfer?: (bytes: number) => unknown }): void {
  buffer.transfer?.(0);
}
