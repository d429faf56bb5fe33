import type { ViewOptions } from '../../src/protocol/views.generated';
import { mount, type IView } from '../../src/views';
import { SyntheticRun, type ISyntheticShape } from './source';

const node = document.getElementById('view') as HTMLElement;

const THEMES: Record<'light' | 'dark', Record<string, string>> = {
  light: {
    '--jp-layout-color0': '#ffffff',
    '--jp-layout-color1': '#ffffff',
    '--jp-layout-color2': '#eeeeee',
    '--jp-ui-font-color0': 'rgba(0, 0, 0, 1)',
    '--jp-ui-font-color1': 'rgba(0, 0, 0, 0.87)',
    '--jp-ui-font-color2': 'rgba(0, 0, 0, 0.54)',
    '--jp-border-color1': '#bdbdbd',
    '--jp-border-color2': '#e0e0e0',
    '--jp-border-color3': '#eeeeee',
    '--jp-brand-color1': '#1976d2'
  },
  dark: {
    '--jp-layout-color0': '#111111',
    '--jp-layout-color1': '#212121',
    '--jp-layout-color2': '#424242',
    '--jp-ui-font-color0': 'rgba(255, 255, 255, 1)',
    '--jp-ui-font-color1': 'rgba(255, 255, 255, 0.87)',
    '--jp-ui-font-color2': 'rgba(255, 255, 255, 0.54)',
    '--jp-border-color1': '#616161',
    '--jp-border-color2': '#424242',
    '--jp-border-color3': '#212121',
    '--jp-brand-color1': '#64b5f6'
  }
};

/** What the tests drive the page with. */
const harness = {
  run: null as SyntheticRun | null,
  view: null as IView | null,

  theme(name: 'light' | 'dark'): void {
    for (const [variable, value] of Object.entries(THEMES[name])) {
      document.documentElement.style.setProperty(variable, value);
    }
    document.body.style.background = THEMES[name]['--jp-layout-color0'] ?? '';
    document.body.dataset['jpThemeLight'] = String(name === 'light');
    document.body.dataset['jpThemeName'] = name;
  },

  async show(options: ViewOptions, shape: ISyntheticShape): Promise<void> {
    harness.view?.dispose();
    harness.run = new SyntheticRun(shape);
    harness.view = await mount(node, harness.run, options);
    await harness.view.settled();
  }
};

declare global {
  interface Window {
    harness: typeof harness;
  }
}

harness.theme('light');
window.harness = harness;
