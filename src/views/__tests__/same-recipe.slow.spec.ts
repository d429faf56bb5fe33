import { fullRun, PICTURED } from './pictured';
import { checkRecipes } from './recipe-checks';

checkRecipes(PICTURED, fullRun);
