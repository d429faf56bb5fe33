import { MimeModel } from '@jupyterlab/rendermime/lib/mimemodel';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { Signal } from '@lumino/signaling';
import { fullViewOptions, type FullOptionsOf } from '../../protocol';
import { bindings, type IBoundModel } from '../bindings';
import { createMimeFactory, VIEW_MIME, VIEW_RANK } from '..';
import { ViewRenderer } from '../mime';
import { ENGLISH } from '../runs';
import { MemoryRuns, plainMount, settled } from './fake-view';
import { MemoryRun } from '../../store/__tests__/memory-run';

const OPTIONS = fullViewOptions({
  view: 'heatmap',
  flag: 'MLP1_mat_mul',
  step: 3
}) as FullOptionsOf<'heatmap'>;

function output(
  json: Record<string, unknown> = {},
  html = '<figure><svg data-step="3"></svg><figcaption>saved</figcaption></figure>'
): MimeModel {
  const data: ReadonlyPartialJSONObject = {
    [VIEW_MIME]: {
      format: 1,
      run: { id: 'r1', name: 'gpt-demo', folder: null },
      options: { ...OPTIONS },
      model_id: 'm1',
      ...json
    } as ReadonlyPartialJSONObject,
    'text/html': html
  };
  return new MimeModel({ data });
}

class KernelModel implements IBoundModel {
  constructor(public value: unknown) {}
  readonly optionsChanged: Signal<IBoundModel, void> = new Signal<IBoundModel, void>(this);
  written: unknown[] = [];
  readOptions(): unknown {
    return this.value;
  }
  writeOptions(options: unknown): void {
    this.written.push(options);
  }
}

describe('the renderer of a view in a cell', () => {
  let runs: MemoryRuns;
  let mount: ReturnType<typeof plainMount>;
  let renderer: ViewRenderer;

  beforeEach(() => {
    runs = new MemoryRuns();
    mount = plainMount();
    renderer = new ViewRenderer(runs, ENGLISH, mount);
  });

  afterEach(() => {
    renderer.dispose();
    expect(runs.shares).toBe(0);
  });

  it('is safe and comes before the renderer of ipywidgets', () => {
    const factory = createMimeFactory(runs);
    expect(factory.safe).toBe(true);
    expect(factory.mimeTypes).toEqual(['application/vnd.megalens.view+json']);
    expect(VIEW_RANK).toBeLessThan(-10);
  });

  it('draws from the JSON alone, with no widget and no kernel', async () => {
    await renderer.renderModel(output({ model_id: undefined }));
    await settled();
    expect(mount.views).toHaveLength(1);
    expect(mount.views[0]?.options).toEqual(OPTIONS);
    expect(renderer.node.textContent).toContain('MLP1_mat_mul');
  });

  it('does not draw again for the same output, and only updates for other options', async () => {
    await renderer.renderModel(output());
    await settled();
    await renderer.renderModel(output());
    await renderer.renderModel(output({ options: { ...OPTIONS, step: 9 } }));
    await settled();
    expect(mount.views).toHaveLength(1);
    expect(mount.views[0]?.options).toEqual({ ...OPTIONS, step: 9 });
  });

  it('keeps what the person chose, and the picture of it, in the notebook', async () => {
    const model = output();
    await renderer.renderModel(model);
    await settled();
    mount.views[0]?.choose({ ...OPTIONS, step: 7 });
    await settled();
    const kept = model.data[VIEW_MIME] as ReadonlyPartialJSONObject;
    expect(kept['options']).toEqual({ ...OPTIONS, step: 7 });
    expect(model.data['text/html']).toBe(
      '<figure><svg data-step="7"></svg><figcaption>saved</figcaption></figure>'
    );
  });

  it('saves a picture where the cell had none, and leaves alone one that is there', async () => {
    const model = output();
    const before = model.data;
    await renderer.renderModel(model);
    await settled();
    expect(model.data).toBe(before);
    const empty = new MimeModel({
      data: { ...before, 'text/html': '<figure><figcaption>nothing yet</figcaption></figure>' }
    });
    const other = new ViewRenderer(runs, ENGLISH, mount);
    await other.renderModel(empty);
    await settled();
    expect(empty.data['text/html']).toBe(
      '<figure><svg data-step="3"></svg><figcaption>nothing yet</figcaption></figure>'
    );
    other.dispose();
  });

  it('binds to the widget when it comes, both ways, and goes on when it leaves', async () => {
    await renderer.renderModel(output());
    await settled();
    const kernel = new KernelModel({ ...OPTIONS, step: 20 });
    bindings.add('m1', kernel);
    expect(mount.views[0]?.options).toEqual({ ...OPTIONS, step: 20 });
    mount.views[0]?.choose({ ...OPTIONS, step: 21 });
    expect(kernel.written).toEqual([{ ...OPTIONS, step: 21 }]);
    kernel.value = { ...OPTIONS, step: 22 };
    kernel.optionsChanged.emit();
    expect(mount.views[0]?.options).toEqual({ ...OPTIONS, step: 22 });
    bindings.remove('m1', kernel);
    mount.views[0]?.choose({ ...OPTIONS, step: 23 });
    expect(kernel.written).toHaveLength(1);
    expect(mount.views[0]?.disposed).toBe(false);
  });

  it('shows the saved picture, why, and a way to try again when the run is not here', async () => {
    const source = runs.source;
    runs.source = null;
    await renderer.renderModel(output());
    await settled();
    expect(renderer.node.textContent).toContain('Run gpt-demo cannot be shown now.');
    expect(renderer.node.textContent).toContain('There is no run r1.');
    expect(decodeURIComponent(renderer.node.querySelector('img')?.src ?? '')).toContain(
      '<svg data-step="3">'
    );
    runs.source = source;
    renderer.node.querySelector('button')?.click();
    await settled();
    expect(mount.views).toHaveLength(1);
    expect(renderer.node.querySelector('img')).toBeNull();
  });

  it('shows every part of a saved picture of several, each as an image of its own', async () => {
    runs.source = null;
    const parts = [
      '<svg data-part="1"><svg y="0"></svg><svg y="9"></svg></svg>',
      '<svg data-part="2"></svg>'
    ];
    await renderer.renderModel(
      output({}, `<figure>${parts.join('')}<figcaption>saved</figcaption></figure>`)
    );
    await settled();
    const images = [...renderer.node.querySelectorAll('img')].map(({ src }) => decodeURIComponent(src));
    expect(images).toEqual(parts.map(part => `data:image/svg+xml;charset=utf-8,${part}`));
  });

  it('has the server read the files that a kernel opened, wherever the notebook lies', async () => {
    const resolver = {
      resolveUrl: (url: string) => Promise.resolve(`my%20work/${url}`),
      getDownloadUrl: (url: string) => Promise.resolve(url)
    };
    const run = { id: 'statistics-1', name: 'a', folder: 'runs/a', kind: 'statistics' };
    const beside = new ViewRenderer(runs, ENGLISH, mount, resolver);
    await beside.renderModel(output({ run }));
    await settled();
    expect(runs.opened).toEqual(['my work/runs/a']);
    expect(mount.views).toHaveLength(1);
    beside.dispose();
    runs.source = null;
    await renderer.renderModel(output({ run: { ...run, folder: null } }));
    await settled();
    expect(renderer.node.textContent).toContain('Open their files in the Megalens panel: “Open files…”.');
    expect(runs.opened).toHaveLength(1);
  });

  it('says what is wrong with an output that it cannot read', async () => {
    await renderer.renderModel(output({ format: 2 }));
    expect(renderer.node.textContent).toContain('another version of Megalens');
    await renderer.renderModel(output({ options: { view: 'heatmap', flag: 'X', scale: 'huge' } }));
    expect(renderer.node.textContent).toContain('scale');
    expect(mount.views).toHaveLength(0);
  });

  it('puts nothing of the output into the page as HTML', async () => {
    await renderer.renderModel(output({ run: { id: 'r9', name: '<img src=x onerror=alert(1)>' } }));
    await settled();
    expect(renderer.node.querySelector('img[onerror]')).toBeNull();
    expect(renderer.node.textContent).toContain('<img src=x onerror=alert(1)>');
  });
});

describe('a cell whose live run ends', () => {
  it('takes the recorded run of the same id as soon as the server has it', async () => {
    jest.useFakeTimers();
    const runs = new MemoryRuns();
    const mount = plainMount();
    const renderer = new ViewRenderer(runs, ENGLISH, mount);
    await renderer.renderModel(output());
    await jest.advanceTimersByTimeAsync(0);
    const live = runs.source;
    live?.connect({ kind: 'closed', reason: 'gone', message: 'The hub is gone.' });
    await jest.advanceTimersByTimeAsync(1500);
    expect(mount.views).toHaveLength(1);
    runs.source = Object.assign(new MemoryRun(null), { connection: { kind: 'recorded' } });
    runs.state = 'recorded';
    await jest.advanceTimersByTimeAsync(1500);
    expect(mount.views).toHaveLength(2);
    expect(mount.views[0]?.disposed).toBe(true);
    expect(mount.views[1]?.source.connection.kind).toBe('recorded');
    expect(runs.shares).toBe(1);
    renderer.dispose();
    expect(runs.shares).toBe(0);
    jest.useRealTimers();
  });
});
