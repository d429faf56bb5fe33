import { ILabShell } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { PageConfig, URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import { IStateDB } from '@jupyterlab/statedb';
import { ITranslator, type TranslationBundle } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';
import { PluginRegistry, type IPlugin, type Token } from '@lumino/coreutils';
import { DisposableDelegate, type IDisposable } from '@lumino/disposable';
import { ContextMenu, Widget } from '@lumino/widgets';
import { pageTranslator } from './language';
import { loadExtension, type IExtension } from './libraries';
import { PageShell } from './page-shell';
import { PageState } from './page-state';
import { showToasts } from './toasts';

const THEME = 'megalens:theme';

type Plugin = IPlugin<unknown, unknown>;

/** What this page needs of the extension itself. */
interface IOwnExtension {
  readonly default: readonly Plugin[];
  readonly IMegalensViewRegistry: Token<{
    follow(act: (info: { readonly name: string; readonly command: string }) => IDisposable): void;
  }>;
}

/** What the server put into the page beside Jupyter's own settings. */
interface IAsked {
  readonly extensions: readonly IExtension[];
  /** Run and view of the address; empty where it has none. */
  readonly run: string;
  readonly view: string;
  /** Folder of the catalogue whose language the browser asks for; empty for English. */
  readonly locale: string;
}

/**
 * The page `/megalens/` of a Jupyter server: the extension itself, as JupyterLab loads it, in a page with a
 * panel and tabs. Other packages' views come with their extensions.
 */
async function start(): Promise<void> {
  const asked = JSON.parse(PageConfig.getOption('megalens')) as IAsked;
  const settings = ServerConnection.makeSettings();
  const shell = new PageShell();
  const ask = (path: string) =>
    ServerConnection.makeRequest(URLExt.join(settings.baseUrl, path), { cache: 'no-cache' }, settings);
  const translator = await pageTranslator(asked.locale, ask);
  const trans = translator.load('megalens');
  translateHead(trans);
  const isKnown = async (run: string) => {
    const answer = await ask(`megalens/api/runs/${encodeURIComponent(run)}`);
    return answer.status !== 404;
  };
  const state = new PageState(asked, isKnown, trans);
  const commands = new CommandRegistry();
  const contextMenu = new ContextMenu({ commands });
  let target: EventTarget | null = null;
  let isRestored = (): void => undefined;
  const app = {
    name: 'Megalens',
    commands,
    contextMenu,
    shell,
    restored: new Promise<void>(resolve => (isRestored = resolve)),
    serviceManager: { serverSettings: settings, user: userOf(ask) },
    /** The element below which the context menu was opened, that fits. */
    contextMenuHitTest: (fits: (node: HTMLElement) => boolean) => {
      for (
        let node = target instanceof HTMLElement ? target : null;
        node !== null;
        node = node.parentElement
      ) {
        if (fits(node)) {
          return node;
        }
      }
      return undefined;
    }
  };
  document.addEventListener('contextmenu', event => {
    target = event.target;
    if (!event.shiftKey && contextMenu.open(event)) {
      event.preventDefault();
    }
  });
  const toggle = document.getElementById('panel') as HTMLButtonElement;
  toggle.addEventListener('click', () => shell.showPanel(!shell.isPanelShown));
  shell.changed.connect(() => toggle.setAttribute('aria-pressed', String(shell.isPanelShown)));
  document.addEventListener('keydown', event => commands.processKeydownEvent(event), true);
  window.addEventListener('resize', () => shell.root.update());
  Widget.attach(shell.root, document.getElementById('work')!);
  showToasts(document.getElementById('toasts')!, trans);

  const registry = new PluginRegistry<unknown>();
  registry.application = app;
  const plugins: Plugin[] = [
    { id: 'megalens-page:shell', provides: ILabShell, activate: () => shell, autoStart: true },
    { id: 'megalens-page:state', provides: IStateDB, activate: () => state, autoStart: true },
    { id: 'megalens-page:words', provides: ITranslator, activate: () => translator, autoStart: true }
  ];
  const folder = URLExt.join(PageConfig.getBaseUrl(), 'megalens/static/extensions');
  const [own, ...others] = asked.extensions;
  if (own === undefined) {
    throw new Error(
      'The extension’s own files are not installed: “jupyter labextension list” names those that are.'
    );
  }
  const made = (await loadExtension(own, folder)) as IOwnExtension;
  plugins.push(...made.default);
  for (const extension of others) {
    try {
      const { default: plugin } = (await loadExtension(extension, folder)) as { default: Plugin | Plugin[] };
      plugins.push(...[plugin].flat());
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      Notification.warning(
        trans.__('The views of %1 cannot be shown in this page: %2', extension.name, reason)
      );
    }
  }
  registry.registerPlugins(satisfied(plugins));
  await registry.activatePlugins('startUp');
  const views = new Map<string, string>();
  (await registry.resolveRequiredService(made.IMegalensViewRegistry)).follow(({ name, command }) => {
    views.set(name, command);
    return new DisposableDelegate(() => views.delete(name));
  });
  await state.restore(shell, commands, views);
  isRestored();
}

/** The server writes the head in English, which stays where the page cannot start. */
function translateHead(trans: TranslationBundle): void {
  document.getElementById('panel')!.textContent = trans.__('Panel');
  document.querySelector('label[for=theme]')!.textContent = trans.__('Theme');
  const names = [trans.__('System'), trans.__('Light'), trans.__('Dark')];
  document.querySelectorAll('#theme option').forEach((option, at) => (option.textContent = names[at] ?? ''));
}

/** The plugins that have all that they require: some are for notebooks, which this page has none of. */
function satisfied(plugins: readonly Plugin[]): Plugin[] {
  const provided = new Set<Token<unknown>>(plugins.flatMap(({ provides }) => provides ?? []));
  const kept = plugins.filter(({ requires = [] }) => requires.every(token => provided.has(token)));
  return kept.length === plugins.length ? kept : satisfied(kept);
}

interface IUser {
  ready: Promise<void>;
  identity?: { readonly name: string; readonly display_name: string };
}

/** Who is logged in, as far as the server says. */
function userOf(ask: (path: string) => Promise<Response>): IUser {
  const read = async () => {
    const answer = (await (await ask('api/me')).json()) as Required<Pick<IUser, 'identity'>>;
    user.identity = answer.identity;
  };
  const user: IUser = { ready: read() };
  user.ready.catch(() => undefined);
  return user;
}

/** Let the person choose light, dark, or what the system has, and keep it. */
function followTheme(): void {
  const choice = document.getElementById('theme') as HTMLSelectElement;
  const system = matchMedia('(prefers-color-scheme: dark)');
  const apply = () => {
    const dark = choice.value === 'dark' || (choice.value === 'system' && system.matches);
    document.documentElement.dataset['theme'] = dark ? 'dark' : 'light';
    // Views watch this mark, as they do in JupyterLab.
    document.body.dataset['jpThemeLight'] = String(!dark);
  };
  try {
    choice.value = localStorage.getItem(THEME) ?? 'system';
  } catch {
    // Without a storage it is chosen anew for each page.
  }
  choice.selectedIndex = Math.max(0, choice.selectedIndex);
  choice.addEventListener('change', () => {
    apply();
    try {
      localStorage.setItem(THEME, choice.value);
    } catch {
      // The same.
    }
  });
  system.addEventListener('change', apply);
  apply();
}

followTheme();
start().catch(error => {
  const fault = document.getElementById('fault')!;
  fault.textContent = `The page could not be opened: ${error instanceof Error ? error.message : String(error)} Reload it, or restart the Jupyter server.`;
  fault.hidden = false;
});
