import { SLICES } from '../instruments/slices.generated';
import { registerSlices } from '../slice';
import { element } from '../views/mount/dom';
import { mountView } from '../views/registry';
import { translateFrom } from '../views/shared/translate';
import type { IViewRuns } from '../views/view';
import type { StoredRun, IPageData } from './stored-run';
import { readPageRun } from './page-data';

/**
 * Put the views of a report over their pictures. Runs in the page that `page.ts` writes, under a content
 * security policy that allows this script and nothing else: no request, no worker, no code from strings.
 */
async function start(): Promise<void> {
  const text = document.getElementById('megalens-data')?.textContent;
  if (!text) {
    return;
  }
  // A page within another one may be told to be as light as that.
  const told = document.documentElement.dataset['theme'] === 'light';
  const dark = matchMedia(told ? 'not all' : '(prefers-color-scheme: dark)');
  // The views watch this mark, as they do in JupyterLab.
  const follow = (): void => void (document.body.dataset['jpThemeLight'] = String(!dark.matches));
  follow();
  dark.addEventListener('change', follow);
  const data = JSON.parse(text) as IPageData;
  const runs = await Promise.all(data.runs.map(readPageRun));
  const [run, ...others] = runs;
  if (run === undefined) {
    return;
  }
  const shared = runsOf(others);
  const translate = translateFrom(data.words ?? {});
  let live = 0;
  for (const [index, options] of data.views.entries()) {
    const still = document.querySelector<HTMLElement>(`#view-${index} .still`);
    if (still === null) {
      continue;
    }
    const node = element('div', { class: 'live' });
    still.after(node);
    // A view measures the node that it is in.
    still.hidden = true;
    try {
      const view = await mountView(node, run, options, {
        renderer: 'svg',
        runs: shared,
        translate,
        openView: ({ view: name }) => {
          // Another view of the page, where it holds one.
          const at = data.views.findIndex(each => each.view === name);
          document.getElementById(`view-${at}`)?.scrollIntoView({ behavior: 'smooth' });
        }
      });
      await view.settled();
      live += 1;
    } catch {
      // The picture says the same.
      node.remove();
      still.hidden = false;
    }
  }
  document.documentElement.dataset['live'] = String(live);
}

function runsOf(others: readonly StoredRun[]): IViewRuns {
  return {
    list: () => Promise.resolve(others.map(({ id, name }) => ({ id, name }))),
    acquire: id => {
      const source = others.find(each => each.id === id);
      return source
        ? Promise.resolve({ source, dispose: () => undefined })
        : Promise.reject(new Error(`This file does not hold the run ${id}.`));
    }
  };
}

registerSlices(SLICES);
void start();
