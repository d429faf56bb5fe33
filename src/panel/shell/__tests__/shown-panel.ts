import { MessageLoop } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';
import type { Hello } from '../../../protocol/messages.generated';
import { MegalensPanel } from '../panel-widget';
import { setUp } from './memory-panel';

/** A panel on the page with its chosen run open. */
export async function shown(hello?: Hello) {
  const { model, runs, host, opened } = setUp();
  if (hello !== undefined) {
    runs.hello = hello;
  }
  const panel = new MegalensPanel(model);
  Widget.attach(panel, document.body);
  await model.ready();
  const find = (selector: string) => panel.node.querySelector<HTMLElement>(selector);
  return { model, runs, host, opened, panel, find, source: runs.opened.get('run-1')! };
}

/** Wait until the page shows what the model says. */
export async function until(met: () => boolean): Promise<void> {
  const seen = new Promise<void>(resolve => {
    const observer = new MutationObserver(() => {
      if (met()) {
        observer.disconnect();
        resolve();
      }
    });
    observer.observe(document.body, {
      childList: true,
      subtree: true,
      attributes: true,
      characterData: true
    });
  });
  MessageLoop.flush();
  if (!met()) {
    await seen;
  }
}
