/** What examples of kits import from `megalens`, without JupyterLab around it. */
export { kitOptions } from '../../src/protocol/kit-options';
export const kits = (): Promise<typeof import('../../src/views/kits')> => import('../../src/views/kits');
