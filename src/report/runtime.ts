import { enliven } from './figure';
import type { IPayload } from './payload';

/**
 * Make every chart of a report live. Runs in the page that `megalens/report/page.py` writes, under a content security policy that allows this
 * script and nothing else: no request, no code from strings.
 */
async function start(): Promise<void> {
  const text = document.getElementById('megalens-data')?.textContent;
  if (!text) {
    return;
  }
  const payload = JSON.parse(text) as IPayload;
  let undo: (() => void)[] = [];
  const draw = async (): Promise<void> => {
    undo.splice(0).forEach(end => end());
    const made: (() => void)[] = [];
    for (const live of payload.views) {
      const figure = document.getElementById(live.id);
      if (figure) {
        made.push(await enliven(figure, live, payload.layers));
      }
    }
    undo = made;
    document.documentElement.dataset['live'] = String(made.length);
  };
  let drawing = draw();
  // Frame colours are the page's own and follow by themselves; only the ordered colours of lines are part of the chart.
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    drawing = drawing.then(draw);
  });
  await drawing;
}

void start();
