/**
 * What the kernel sends with each widget, as anywidget's `_esm`: a few lines that ask it once a page for the
 * module of the views, which is packed and so large that no notebook should carry it.
 */
import type { ICommModel } from './comm-runs';

/** SHA-256 of the packed module in hexadecimal digits, of which the build knows. */
declare const MODULE_DIGEST: string;

interface IViewModule {
  render(context: { model: ICommModel; el: HTMLElement }): Promise<() => void>;
}

const AFTER_MS = 4000;
const WAITING =
  'Waiting for the kernel, which sends this view. It is busy, or gone: then run the cell again.';
const KEY = Symbol.for(`megalens ${MODULE_DIGEST}`);
const page = globalThis as { [KEY]?: Promise<IViewModule> };

function ask(model: ICommModel): Promise<Uint8Array<ArrayBuffer>> {
  return new Promise(resolve => {
    const take = (content: unknown, buffers?: readonly DataView[]): void => {
      const [buffer] = buffers ?? [];
      if ((Object(content) as { module?: unknown }).module === MODULE_DIGEST && buffer) {
        model.off('msg:custom', take);
        resolve(new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength).slice());
      }
    };
    model.on('msg:custom', take);
    model.send({ module: MODULE_DIGEST });
  });
}

async function load(model: ICommModel): Promise<IViewModule> {
  const packed = await ask(model);
  // Pages of insecure addresses have no digests; they took these lines from the same kernel.
  const digest = crypto.subtle && new Uint8Array(await crypto.subtle.digest('SHA-256', packed));
  if (digest && [...digest].map(byte => byte.toString(16).padStart(2, '0')).join('') !== MODULE_DIGEST) {
    throw new Error('The views that the kernel sent are not those of its package. Reinstall megalens.');
  }
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'));
  const text = await new Response(stream).text();
  const url = URL.createObjectURL(new Blob([text], { type: 'text/javascript' }));
  try {
    return ((await import(url)) as { default: IViewModule }).default;
  } finally {
    URL.revokeObjectURL(url);
  }
}

async function render({ model, el }: Parameters<IViewModule['render']>[0]): Promise<() => void> {
  const words = document.createElement('p');
  el.append(words);
  // The widget that was asked first may be gone meanwhile.
  let late: ReturnType<typeof setTimeout> | undefined;
  const again = new Promise<IViewModule>((resolve, reject) => {
    late = setTimeout(() => {
      words.textContent = WAITING;
      load(model).then(resolve, reject);
    }, AFTER_MS);
  });
  try {
    const module = await Promise.race([(page[KEY] ??= load(model)), again]);
    words.remove();
    return await module.render({ model, el });
  } catch (error) {
    delete page[KEY];
    words.textContent = error instanceof Error ? error.message : String(error);
    return () => words.remove();
  } finally {
    clearTimeout(late);
  }
}

export default { render };
