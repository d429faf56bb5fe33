// Jobs that behave badly, or say back what they were given: the bundle of the tests of the engine's process.
import '../../../src/engine/polyfills';
import { expose } from '../../../src/engine/pipe';
import { registerJob } from '../../../src/engine/jobs';

const arg = (args: unknown, name: string): unknown => (args as Record<string, unknown>)[name];

registerJob('echo', async args => ({ json: args }));

registerJob('ask', async (args, host) => {
  const { json, bytes } = await host.ask('question', args as object);
  return { json, bytes: bytes ?? undefined };
});

registerJob('ask-many', async (args, host) => {
  const numbers = Array.from({ length: Number(arg(args, 'count')) }, (_, place) => place);
  const answers = await Promise.all(numbers.map(place => host.ask('question', { place })));
  return { json: answers.map(({ json }) => json) };
});

registerJob('loop', async () => {
  for (;;) {
    // Until somebody ends it.
  }
});

registerJob('bomb', async () => {
  const kept: unknown[] = [];
  for (;;) {
    kept.push(new Array(100_000).fill(1.5));
  }
});

registerJob('bytes-bomb', async () => {
  const kept: Uint8Array[] = [];
  for (;;) {
    kept.push(new Uint8Array(64 << 20).fill(1));
  }
});

registerJob('stuck', () => new Promise(() => undefined));

registerJob('throw', () => {
  throw Object.assign(new Error('This view has no \u{0}flag\ud800.'), { field: 'options.flag' });
});

registerJob('steps', async (_, host) => {
  for (let done = 1; done <= 3; done++) {
    await new Promise(later => setTimeout(later, 60_000));
    host.progress(done, 3, `step ${done}`);
  }
  return { json: null };
});

registerJob('order', async () => {
  const seen: string[] = [];
  const after = (delay: number, name: string): Promise<void> =>
    new Promise(resolve =>
      setTimeout(() => {
        seen.push(name);
        resolve();
      }, delay)
    );
  const stopped = setTimeout(() => seen.push('never'), 1);
  clearTimeout(stopped);
  await Promise.all([after(20, 'c'), after(10, 'a'), after(10, 'b')]);
  return { json: seen };
});

registerJob('text', async args => {
  const text = String(arg(args, 'text'));
  const bytes = new TextEncoder().encode(text);
  const binary = String.fromCharCode(...bytes);
  return {
    json: {
      length: text.length,
      utf8: [...bytes],
      back: new TextDecoder().decode(bytes),
      base64: btoa(binary)
    },
    bytes
  };
});

registerJob('clone', async () => {
  const loop: { self?: unknown } = {};
  loop.self = loop;
  const value = {
    loop,
    map: new Map([[1, new Set([2])]]),
    date: new Date(7),
    floats: new Float32Array([1.5])
  };
  const copy = structuredClone(value);
  const abort = new AbortController();
  const either = AbortSignal.any([new AbortController().signal, abort.signal]);
  abort.abort(new Error('enough'));
  return {
    json: [
      copy.loop.self === copy.loop && copy.loop !== loop,
      copy.map.get(1)?.has(2),
      copy.date.getTime(),
      [...copy.floats],
      (either.reason as Error).message
    ]
  };
});

registerJob('world', async () => {
  const names = ['fetch', 'XMLHttpRequest', 'WebSocket', 'process', 'require', 'Deno', 'document', 'window'];
  return { json: names.filter(name => name in globalThis) };
});

expose();
