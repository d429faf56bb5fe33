import fc from 'fast-check';
import type { Hello } from '../../../protocol/messages.generated';
import { HOSTILE_NAMES, names } from '../../../protocol/__tests__/hostile';
import { HELLO } from './controlled-run';
import { JOB } from './memory-job';
import { shown, until } from './shown-panel';

/** What each section reads while it is drawn, to be made to throw. */
const BROKEN = {
  runs: model => [model.runs, 'entries'],
  summary: model => [model.open!.source, 'status'],
  trace: model => [model.open!.trace, 'rows'],
  perturb: model => [model.open!.perturb, 'rows'],
  views: model => [model.open!.source, 'hello']
} satisfies Record<string, (model: Awaited<ReturnType<typeof shown>>['model']) => [object, string]>;

const SECTIONS = ['runs', 'summary', 'trace', 'perturb', 'views'];

describe('a section that cannot be drawn', () => {
  let told: jest.SpyInstance;
  beforeEach(() => {
    // React reports what a boundary catches.
    told = jest.spyOn(console, 'error').mockImplementation(() => undefined);
  });
  afterEach(() => told.mockRestore());

  it.each(['runs', 'trace', 'perturb'] as const)(
    '%s says so in its place, leaves the others, and comes back after Reset',
    async name => {
      const { model, panel, find, host } = await shown(JOB);
      await until(() => SECTIONS.every(each => find(`.jp-mod-${each} .jp-MegalensSection-toggle`) !== null));
      const [object, member] = BROKEN[name](model);
      let broken = true;
      const prototype = Object.getPrototypeOf(object) as object;
      const real = Object.getOwnPropertyDescriptor(prototype, member)!;
      Object.defineProperty(object, member, {
        configurable: true,
        get() {
          if (broken) {
            throw new TypeError(`no ${member} today`);
          }
          return real.get!.call(object);
        }
      });
      panel.update();
      await until(() => find(`.jp-mod-${name}.jp-mod-fault`) !== null);
      for (const other of SECTIONS.filter(each => each !== name)) {
        expect(find(`.jp-mod-${other} .jp-MegalensSection-toggle`)).not.toBeNull();
      }
      const fault = find(`.jp-mod-${name}.jp-mod-fault`)!;
      expect(fault.querySelector('[role="alert"]')?.textContent).toContain('are not affected');
      const [reset, copy] = fault.querySelectorAll('button');
      copy!.click();
      expect(host.copy.mock.calls[0]?.[0]).toContain(`section ${name}`);
      expect(host.copy.mock.calls[0]?.[0]).toContain(`no ${member} today`);
      // What fails again says so again, and never blanks.
      reset!.click();
      await until(() => find(`.jp-mod-${name}.jp-mod-fault`) !== null);
      broken = false;
      find(`.jp-mod-${name}.jp-mod-fault button`)!.click();
      await until(() => find(`.jp-mod-${name} .jp-MegalensSection-toggle`) !== null);
      panel.dispose();
    }
  );

  it('is never the whole panel, whatever throws', async () => {
    const { model, panel, find } = await shown(JOB);
    await until(() => find('.jp-mod-views .jp-MegalensSection-toggle') !== null);
    for (const place of Object.values(BROKEN)) {
      const [object, member] = place(model);
      Object.defineProperty(object, member, {
        configurable: true,
        get() {
          throw new RangeError('hostile');
        }
      });
    }
    panel.update();
    await until(() => panel.node.querySelectorAll('.jp-mod-fault').length >= 4);
    expect(find('.jp-MegalensPanel-content')).not.toBeNull();
    panel.dispose();
  });
});

it('a reset of what is being edited drops the edits', async () => {
  const { model, panel } = await shown(JOB);
  model.open!.trace.toggle('QKV_mat_mul', true);
  model.open!.perturb.toggle('calculation', true);
  expect([model.open!.trace.dirty, model.open!.perturb.ready]).toEqual([true, true]);
  model.open!.trace.revert();
  model.open!.perturb.revert();
  expect([model.open!.trace.dirty, model.open!.perturb.ready]).toEqual([false, false]);
  panel.dispose();
});

/** A hello in which everything that can be named is named so. */
function named(all: readonly string[]): Hello {
  const [flag = HELLO.flags[0]!] = HELLO.flags;
  const [site] = JOB.sites ?? [];
  const setting = {
    compressor: { name: all[0] ?? '', params: Object.fromEntries(all.map(each => [each, 1])) }
  };
  const schema = {
    type: 'object',
    properties: Object.fromEntries(all.map(each => [each, { type: 'string', title: each, default: each }]))
  };
  const choice = (name: string) => ({ name, title: name, description: name, schema });
  return {
    ...structuredClone(JOB),
    flags: all.map(name => ({ ...flag, name, title: name, parts: [...all] })),
    compressors: all.map(choice),
    sites: all.map(name => ({ ...site!, name, title: name, kinds: all.map(choice) })),
    config: { flags: Object.fromEntries(all.map(each => [each, setting])) },
    versions: Object.fromEntries(all.map(each => [each, each]))
  };
}

it('every section is drawn whatever the flags, compressors, sites and parameters are called', async () => {
  const check = async (all: readonly string[]): Promise<void> => {
    const { model, panel, find } = await shown(named(all));
    await until(() => find('.jp-mod-views .jp-MegalensSection-toggle') !== null);
    expect(panel.node.querySelectorAll('.jp-mod-fault')).toHaveLength(0);
    const labels = [...panel.node.querySelectorAll('.jp-mod-trace .jp-MegalensFlag label[for]')];
    expect(labels.map(label => label.textContent)).toEqual([...all]);
    expect(model.code()).toContain('run.configure(');
    panel.dispose();
  };
  await check(HOSTILE_NAMES);
  await fc.assert(fc.asyncProperty(names(1, 4), check), { numRuns: 10 });
}, 30_000);
