import { ILabShell, ILayoutRestorer, IRouter } from '@jupyterlab/application';
import {
  Clipboard,
  Dialog,
  ICommandPalette,
  InputDialog,
  MainAreaWidget,
  Notification,
  showDialog,
  showErrorMessage,
  WidgetTracker
} from '@jupyterlab/apputils';
import { PageConfig, URLExt } from '@jupyterlab/coreutils';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { ServerConnection } from '@jupyterlab/services';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStateDB } from '@jupyterlab/statedb';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import {
  caretDownIcon,
  caretRightIcon,
  LabIcon,
  listIcon,
  ReactWidget,
  refreshIcon,
  Spinner,
  UseSignal
} from '@jupyterlab/ui-components';
import * as algorithm from '@lumino/algorithm';
import * as commands from '@lumino/commands';
import * as coreutils from '@lumino/coreutils';
import * as disposable from '@lumino/disposable';
import * as dragdrop from '@lumino/dragdrop';
import * as messaging from '@lumino/messaging';
import * as signaling from '@lumino/signaling';
import * as widgets from '@lumino/widgets';
import * as react from 'react';
import { own } from '../protocol/records';

/** Versions of what this page has of JupyterLab, by package; `scripts/build-bundles.mjs` writes them. */
declare const LIBRARY_VERSIONS: Readonly<Record<string, string>>;

/** What extensions take from the page. Of JupyterLab's packages it has what Megalens itself uses. */
const LIBRARIES: Readonly<Record<string, object>> = {
  '@jupyterlab/application': { ILabShell, ILayoutRestorer, IRouter },
  '@jupyterlab/apputils': {
    Clipboard,
    Dialog,
    ICommandPalette,
    InputDialog,
    MainAreaWidget,
    Notification,
    showDialog,
    showErrorMessage,
    WidgetTracker
  },
  '@jupyterlab/coreutils': { PageConfig, URLExt },
  '@jupyterlab/rendermime': { IRenderMimeRegistry },
  '@jupyterlab/services': { ServerConnection },
  '@jupyterlab/settingregistry': { ISettingRegistry },
  '@jupyterlab/statedb': { IStateDB },
  '@jupyterlab/translation': { ITranslator, nullTranslator },
  '@jupyterlab/ui-components': {
    caretDownIcon,
    caretRightIcon,
    LabIcon,
    listIcon,
    ReactWidget,
    refreshIcon,
    Spinner,
    UseSignal
  },
  // Tokens of widgets of a kernel, which this page has none of.
  '@jupyter-widgets/base': { IJupyterWidgetRegistry: new coreutils.Token('no widgets of kernels') },
  '@lumino/algorithm': algorithm,
  '@lumino/commands': commands,
  '@lumino/coreutils': coreutils,
  '@lumino/disposable': disposable,
  '@lumino/dragdrop': dragdrop,
  '@lumino/messaging': messaging,
  '@lumino/signaling': signaling,
  '@lumino/widgets': widgets,
  react
};

/** An extension of JupyterLab as the server lists it. */
export interface IExtension {
  readonly name: string;
  /** The file that is loaded first, relative to the folder that serves extensions. */
  readonly load: string;
  readonly extension?: string;
  readonly style?: string;
}

interface IContainer {
  init(scope: object): unknown;
  get(module: string): Promise<() => unknown>;
}

declare global {
  interface Window {
    _JUPYTERLAB?: Record<string, IContainer>;
  }
}

const scope = Object.fromEntries(
  Object.entries(LIBRARIES).map(([name, library]) => {
    const get = () => Promise.resolve(() => library);
    return [name, { [own(LIBRARY_VERSIONS, name)!]: { get, from: 'megalens-page', eager: true, loaded: 1 } }];
  })
);

/** Load an extension as JupyterLab does, with its styles, and give what its module exports. */
export async function loadExtension(
  { name, load, extension, style }: IExtension,
  folder: string
): Promise<unknown> {
  await new Promise<void>((resolve, reject) => {
    const script = document.createElement('script');
    script.src = URLExt.join(folder, name, load);
    script.onload = () => resolve();
    script.onerror = () =>
      reject(new Error(`The code of ${name} could not be loaded from the Jupyter server.`));
    document.head.append(script);
  });
  const container = own(window._JUPYTERLAB, name);
  if (container === undefined) {
    throw new Error(`The code of ${name} is no extension of JupyterLab.`);
  }
  await container.init(scope);
  if (style !== undefined) {
    (await container.get(style))();
  }
  return extension === undefined ? {} : (await container.get(extension))();
}
