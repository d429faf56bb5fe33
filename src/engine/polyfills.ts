import { Controller, Signal, Decoder, Encoder, toBase64, timers } from './page-parts';

const none = (): void => undefined;

/**
 * What V8 alone lacks and the views, the stores or Vega need. There is no clock, no network, no file and no
 * console in it.
 */
const missing: Record<string, unknown> = {
  TextEncoder: Encoder,
  TextDecoder: Decoder,
  AbortController: Controller,
  AbortSignal: Signal,
  btoa: toBase64,
  console: { log: none, info: none, debug: none, warn: none, error: none },
  performance: { now: () => timers.now },
  queueMicrotask: (callback: () => void) => void Promise.resolve().then(callback),
  structuredClone: clone,
  setImmediate: (callback: () => void) => timers.start(callback),
  setTimeout: timers.start,
  clearTimeout: timers.stop,
  // Vega names it and never calls it.
  setInterval: none
};
// eslint-disable-next-line megalens/own-names -- every name is written above
Object.assign(globalThis, missing);

/**
 * `structuredClone` of what Vega clones: plain objects, lists, maps, sets, dates and typed arrays, cycles
 * too.
 */
function clone(value: unknown, seen = new Map<object, unknown>()): unknown {
  if (typeof value !== 'object' || value === null) {
    if (typeof value === 'function' || typeof value === 'symbol') {
      throw new TypeError('A function cannot be cloned.');
    }
    return value;
  }
  if (seen.has(value)) {
    return seen.get(value);
  }
  const keep = <T extends object>(copy: T): T => {
    seen.set(value, copy);
    return copy;
  };
  if (Array.isArray(value)) {
    const copy = keep<unknown[]>(new Array(value.length));
    value.forEach((item, index) => (copy[index] = clone(item, seen)));
    return copy;
  }
  if (value instanceof Date) {
    return keep(new Date(value));
  }
  if (value instanceof RegExp) {
    return keep(new RegExp(value));
  }
  if (value instanceof Map) {
    const copy = keep(new Map<unknown, unknown>());
    value.forEach((item, key) => copy.set(clone(key, seen), clone(item, seen)));
    return copy;
  }
  if (value instanceof Set) {
    const copy = keep(new Set<unknown>());
    value.forEach(item => copy.add(clone(item, seen)));
    return copy;
  }
  if (value instanceof ArrayBuffer) {
    return keep(value.slice(0));
  }
  if (ArrayBuffer.isView(value)) {
    const typed = value as Uint8Array;
    return keep(new (typed.constructor as Uint8ArrayConstructor)(typed));
  }
  const copy = keep<Record<string, unknown>>({});
  for (const [key, item] of Object.entries(value)) {
    // Assigned, a member called __proto__ would become the copy's prototype.
    Object.defineProperty(copy, key, {
      value: clone(item, seen),
      configurable: true,
      enumerable: true,
      writable: true
    });
  }
  return copy;
}
