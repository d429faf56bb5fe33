import { nullTranslator } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';
import { HELLO } from '../../src/panel/shell/__tests__/controlled-run';
import { LIVE, MemoryRuns } from '../../src/panel/shell/__tests__/memory-panel';
import { PanelModel } from '../../src/panel/shell/panel-model';
import { MegalensPanel } from '../../src/panel/shell/panel-widget';
import { copied, quietHost } from './quiet-host';

const NAMES = [
  'constructor',
  '__proto__',
  'toString',
  'hasOwnProperty',
  'valueOf',
  '',
  '<b>&amp;"',
  '\u202eabc',
  '😀'
];
/** A panel on a run whose flags have the worst of names, and whose section of perturbations throws. */
async function open(): Promise<void> {
  const runs = new MemoryRuns();
  const [flag] = HELLO.flags;
  const setting = { compressor: { name: 'Tile', params: { tiles: 96 } } };
  runs.entries = [LIVE, ...NAMES.slice(0, 3).map(name => ({ ...LIVE, id: `run-${name}`, name }))];
  runs.hello = {
    ...HELLO,
    flags: NAMES.map(name => ({ ...flag!, name, title: name })),
    config: { flags: Object.fromEntries([['__proto__', setting]]) },
    controls: ['pause', 'perturb'],
    sites: [{ name: 'weight', title: 'Weights', layers: [0], kinds: [] }]
  };
  const model = new PanelModel(runs, quietHost, nullTranslator.load('megalens'));
  const panel = new MegalensPanel(model);
  Widget.attach(panel, document.body);
  await model.ready();
  let broken = true;
  const { perturb } = model.open!;
  Object.defineProperty(perturb, 'rows', {
    get: () => {
      if (broken) {
        throw new TypeError('Cannot read properties of undefined (reading "kinds")');
      }
      return [];
    }
  });
  Object.assign(window, { mend: () => (broken = false), copied });
  panel.update();
}

void open();
